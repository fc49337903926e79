"""What simulated teams work on: three domains, ten subjects, fifty parts, written for this project.

A part says what is asked, what it hands over, what a sound result does and what a poor one does.
Support letters are handled in Chinese.
"""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """One part of a subject; `name` is an identifier, so that propositions can be named after it."""

    name: str
    ask: str
    form: str  # what it hands over
    sound: str  # what a result that passes does
    poor: str  # what a result that fails does


class Subject(NamedTuple):
    """Something to be done, in five parts. `rivals` are answers of which exactly one is right."""

    title: str
    text: str
    model: str  # the terms all parts share
    parts: tuple[Part, ...]
    rivals: tuple[str, ...] = ()


class Domain(NamedTuple):
    """A field of work: who does it, what its results are called, what may be asked besides."""

    name: str
    worker: str  # component that does the parts
    verifier: str  # component that checks the whole
    product: str  # proposition: all parts together are sound
    verdict: str  # proposition: the checks pass
    tool: str
    settings: tuple[str, ...]
    subjects: tuple[Subject, ...]


_BANK = Subject(
    "Bank import",
    "Write a module that turns a bank's CSV export into ledger entries.",
    "Row(line, date, text, cents); Entry(date, account, cents); a ledger is a list of entries sorted by date.",
    (
        Part("parse_rows", "Read the CSV text into rows and keep each line number.", "parse_rows(text) -> list[Row]",
             "Quoted commas stay inside one field and empty lines are skipped.", "A quoted comma splits one field in two."),
        Part("parse_amount", "Turn an amount such as '1.234,50' into cents.", "parse_amount(text) -> int",
             "Comma and point both work as decimal mark.", "An amount without decimals is read a hundred times too small."),
        Part("match_account", "Find the account of an entry by its text.", "match_account(row) -> str",
             "The longest matching rule wins.", "The first rule wins where a longer one fits."),
        Part("drop_duplicates", "Leave out entries that were imported before.", "drop_duplicates(entries, known) -> list[Entry]",
             "Two equal payments on one day are both kept.", "Two equal payments on one day become one."),
        Part("report_errors", "List the lines that could not be read, with the reason.", "report_errors(rows) -> str",
             "Each line is named once, with its number.", "The line numbers are one too low."),
    ),
)  # fmt: skip

_BUS = Subject(
    "Bus timetable",
    "Write a small library that answers timetable questions for a city bus network.",
    "Stop(id, name); Trip(line, calls); Call(stop, minute); minutes count from midnight.",
    (
        Part("read_calendar", "Decide on which days a trip runs.", "runs_on(trip, day) -> bool",
             "Holidays follow the Sunday timetable.", "Holidays follow the weekday timetable."),
        Part("next_departure", "Find the next departure from a stop.", "next_departure(stop, minute) -> Call",
             "After the last trip it returns the first one of the next day.", "After the last trip it returns nothing."),
        Part("find_route", "Find the fastest way between two stops.", "find_route(a, b, minute) -> list[Trip]",
             "A change takes at least three minutes.", "It plans changes of zero minutes."),
        Part("walk_links", "Add footpaths between stops that lie close together.", "walk_links(stops, metres) -> list[Link]",
             "Every footpath exists in both directions.", "Footpaths exist in one direction only."),
        Part("format_answer", "Write a route as text for a passenger.", "format_answer(route) -> str",
             "Times after midnight are shown as 00:10.", "Times after midnight are shown as 24:10."),
    ),
)  # fmt: skip

_NOTES = Subject(
    "Note search",
    "Write a search index for a folder of notes.",
    "Note(id, title, body); Posting(word, note, positions).",
    (
        Part("split_words", "Split a note into words.", "split_words(body) -> list[str]",
             "Words with an apostrophe stay whole.", "A word with an apostrophe becomes two."),
        Part("build_index", "Build the index from all notes.", "build_index(notes) -> Index",
             "Building twice gives the same index.", "Building twice doubles every posting."),
        Part("rank_hits", "Order the hits by how well they match.", "rank_hits(query, index) -> list[Hit]",
             "A word in the title counts twice.", "Long notes always come first."),
        Part("phrase_query", "Find exact phrases in quotation marks.", "phrase_query(words, index) -> list[Hit]",
             "The words must stand side by side, in order.", "The order of the words is ignored."),
        Part("update_note", "Replace one note without building the index again.", "update_note(index, note) -> Index",
             "Words that left the note are gone from the index.", "Words that left the note are still found."),
    ),
)  # fmt: skip

_MEETING = Subject(
    "Meeting planner",
    "Write a planner that finds a meeting time for several people.",
    "Slot(start, end) in minutes UTC; Person(name, zone, busy).",
    (
        Part("to_utc", "Convert each person's calendar to UTC.", "to_utc(slots, zone) -> list[Slot]",
             "The change to summer time is handled.", "The hour of the change to summer time is counted twice."),
        Part("merge_busy", "Merge overlapping busy times.", "merge_busy(slots) -> list[Slot]",
             "Slots that touch are merged too.", "Slots that touch stay apart."),
        Part("free_slots", "Find the times when everybody is free.", "free_slots(people, length) -> list[Slot]",
             "A meeting may end exactly when the next one starts.", "The last slot of the day is missed."),
        Part("rank_slots", "Prefer slots inside everybody's working hours.", "rank_slots(slots, people) -> list[Slot]",
             "Equal slots keep their order.", "Equal slots change order from run to run."),
        Part("write_invite", "Write the invitation as an ICS file.", "write_invite(slot, people) -> str",
             "Long lines are folded at 75 bytes.", "A comma in a name breaks the file."),
    ),
)  # fmt: skip

_FERRY = Subject(
    "Harbour ferry",
    "Find out why fewer people take the harbour ferry and write a one-page report.",
    "Passengers per month; fares in euros; the bridge opened two years ago, in May.",
    (
        Part("count_passengers", "Collect the monthly passenger numbers of four years.", "table: month, passengers",
             "All 48 months are there; two corrected ones are marked.", "Two months are counted twice."),
        Part("compare_fares", "List the fare changes and when they took effect.", "table: date, fare",
             "Fares are given with and without the season ticket.", "The season ticket is left out."),
        Part("check_bridge", "Compare the traffic on the bridge before and after.", "table: week, crossings",
             "The free opening weeks are kept apart.", "The free opening weeks are mixed into the average."),
        Part("ask_riders", "Summarise the survey of the riders.", "list: reason, share",
             "Shares are given with the number of answers.", "Shares are given without the number of answers."),
        Part("weigh_causes", "Say how much each cause explains.", "table: cause, share",
             "The shares add up to the whole fall.", "The shares add up to more than the whole fall."),
    ),
    ("fares_caused_it", "bridge_caused_it", "weather_caused_it"),
)  # fmt: skip

_HEATING = Subject(
    "School heating",
    "Recommend one of three heating systems for an old school building.",
    "Heat in kWh a year; costs in euros over twenty years; the gym is used in the evening too.",
    (
        Part("heat_demand", "Work out the yearly heat demand.", "number: kWh a year",
             "The gym is counted with its own hours.", "The gym is counted as heated all day."),
        Part("running_costs", "Estimate the costs over twenty years.", "table: system, costs",
             "Repairs and one exchange of the pump are included.", "Repairs are left out."),
        Part("noise_limits", "Check the noise limits of the neighbourhood.", "table: system, decibels at night",
             "The limit at night decides.", "The limit by day was used for the night."),
        Part("list_grants", "List the grants that apply.", "table: grant, share, deadline",
             "Grants that exclude each other are marked.", "Two grants that exclude each other are added up."),
        Part("rank_systems", "Put the three systems in order and say why.", "list: place, system, reason",
             "The order holds if energy prices double.", "The order rests on one price only."),
    ),
    ("heat_pump_best", "pellets_best", "district_heat_best"),
)  # fmt: skip

_LIBRARY = Subject(
    "Library hours",
    "Advise the town library on its opening hours.",
    "Visits per hour of the week; one extra hour needs two people.",
    (
        Part("visit_counts", "Collect visits by hour of the week.", "table: hour, visits",
             "School holidays are shown apart.", "School holidays are mixed in."),
        Part("staff_costs", "Work out what an extra hour costs.", "number: euros an hour",
             "Sunday pay is included.", "Sunday pay is left out."),
        Part("other_towns", "See what three towns of the same size do.", "table: town, hours, visits",
             "The towns have the same number of people.", "One of the towns is four times as large."),
        Part("user_wishes", "Summarise what users ask for.", "list: wish, number",
             "People who never come were asked too.", "Only people inside the library were asked."),
        Part("final_advice", "Write the advice in ten lines.", "text: ten lines",
             "It names the cost of each choice.", "It names no cost."),
    ),
    ("evenings_best", "sundays_best", "no_change_best"),
)  # fmt: skip

_REFUNDS = Subject(
    "退款来信",
    "整理本周的退款来信，写出统一的回复和处理办法。",
    "来信（编号、日期、订单号、诉求）；处理办法（退款、换货、说明）。",
    (
        Part("sort_letters", "按诉求给来信分类。", "表：编号、诉求",
             "每封信只归一类，拿不准的单独列出。", "有的信被归进了两类。"),
        Part("check_orders", "核对来信里的订单号。", "表：订单号、状态",
             "已经退过款的订单都标了出来。", "已经退过款的订单又列了一次。"),
        Part("refund_rules", "写清楚什么情况可以退款。", "条款：情况、期限、金额",
             "期限从收货当天算起。", "期限从下单当天算起，没有算运输的时间。"),
        Part("reply_draft", "写一份语气平和的回复。", "正文：说明、下一步",
             "回复里写明了到账时间。", "回复里没有写到账时间。"),
        Part("weekly_table", "做一张本周处理情况的表。", "表：类别、封数、金额",
             "各类封数加起来等于来信总数。", "各类封数加起来比来信总数多两封。"),
    ),
)  # fmt: skip

_COOKER = Subject(
    "电饭锅说明书",
    "把电饭锅的说明书改写成老人也看得懂的一页纸。",
    "内锅、锅盖、蒸汽口、开关；一页纸分上、中、下三块。",
    (
        Part("key_steps", "列出煮饭的步骤。", "步骤：一到六",
             "先放水、后通电，顺序写清楚了。", "通电写在了放水前面。"),
        Part("safety_notes", "写安全提示。", "提示：情况、做法",
             "蒸汽口烫手的提示放在最前面。", "漏写了蒸汽口烫手的提示。"),
        Part("word_list", "把难懂的词换成常用词。", "表：原词、换成",
             "同一样东西前后只用一个名字。", "“内胆”和“内锅”混着用。"),
        Part("five_questions", "回答最常见的五个问题。", "问与答：五条",
             "每个回答都不超过两句话。", "有一个回答答非所问。"),
        Part("page_layout", "安排一页纸的版面。", "版面：上、中、下",
             "用大字，一页放得下。", "一页放不下，排到了第二页。"),
    ),
)  # fmt: skip

_FESTIVAL = Subject(
    "社区中秋活动",
    "为社区的中秋活动写通知、安排和预算。",
    "时间：晚上六点到九点；地点：中心花园；人数：约两百人。",
    (
        Part("notice_text", "写一份贴在楼道里的通知。", "正文：时间、地点、内容",
             "时间、地点、联系人都写了。", "没有写联系人。"),
        Part("time_plan", "排出当晚的时间安排。", "表：时刻、节目",
             "节目之间留了换场的时间。", "两个节目排在了同一时刻。"),
        Part("cost_plan", "算出预算。", "表：项目、数量、金额",
             "月饼按两百人算，留了一成余量。", "月饼只按一百人算。"),
        Part("helper_list", "安排帮忙的人。", "表：岗位、人数",
             "每个岗位都有替补。", "收尾的岗位没有排人。"),
        Part("rain_plan", "写好下雨时的办法。", "步骤：何时、谁、做什么",
             "下午四点前决定是否改到室内。", "没有写由谁决定。"),
    ),
)  # fmt: skip

DOMAINS = (
    Domain(
        "software", "coder", "tester", "code_ok", "tests_ok", "pytest",
        ("Plain Python, no other packages.", "Wrong input must never stop the run.", "Every function needs a test.",
         "It must finish within one second.", "Keep the code short.", "The old version keeps working meanwhile."),
        (_BANK, _BUS, _NOTES, _MEETING),
    ),
    Domain(
        "research", "researcher", "reviewer", "findings_ok", "review_ok", "search",
        ("The council meets on Thursday.", "Write for readers without a technical background.", "Say where the data are thin.",
         "Numbers first, opinions last.", "Put the sources at the end."),
        (_FERRY, _HEATING, _LIBRARY),
    ),
    Domain(
        "support", "writer", "checker", "replies_ok", "check_ok", "lookup",
        ("今天下班前要用。", "语气要平和。", "写给第一次来的人看。", "每一条都要能照着做。", "篇幅不超过一页。"),
        (_REFUNDS, _COOKER, _FESTIVAL),
    ),
)  # fmt: skip
