"""How simulated agents speak: one set of sentences in English and one in Chinese, with places to fill in."""

from __future__ import annotations

from typing import NamedTuple


class Phrases(NamedTuple):
    """Sentences by occasion; the names in braces are filled in when they are said."""

    space: str  # between two sentences
    comma: str  # between two names
    plan: str
    needs: str
    plan_alone: str
    spawn: str
    delegate: str
    mend: str
    begin: tuple[str, ...]
    done: str
    done_poor: str
    call: str
    answer: tuple[str, ...]
    hand_over: str
    chatter: tuple[str, ...]
    idle: str
    aggregate: str
    aggregate_again: str
    check: str
    checked: str
    all_pass: str
    some_fail: str
    misfit: str
    review: str
    stop_passed: str
    stop_failed: str
    stop_unchecked: str
    stop_early: str
    stop_false: str
    stop_doubtful: str
    storm: str
    give_up: str
    recover: str
    pass_on: str
    same_part: str
    partial_check: str


ENGLISH = Phrases(
    space=" ",
    comma=", ",
    plan="I split the task into {n} parts: {names}.",
    needs="{part} builds on {needed}.",
    plan_alone="I do the {n} parts myself, one after the other: {names}.",
    spawn="I start {n} agents: {names}.",
    delegate="{to}, please take {part}.",
    mend="{to}, please mend {part}. {poor}",
    begin=(
        "I begin with {part}: first what comes in, then what goes out.",
        "Looking at {part}. The terms are clear; I write a first version.",
        "{part}: I start from the smallest case and add the others.",
    ),
    done="{part} is ready. {sound}",
    done_poor="{part} is ready. At first sight it looks right.",
    call="{tool}: {part}, try {n}",
    answer=("{part}: nothing to report", "{part}: one remark, dealt with", "{part}: as expected"),
    hand_over="{to}: {part} hands over `{form}`.",
    chatter=(
        "{to}, I am still on {part}.",
        "{to}, any news from your side?",
        "{to}, thanks, noted. {part} goes on.",
        "{to}, just a short sign of life from {part}.",
    ),
    idle="I have no part to do. I wait.",
    aggregate="I put {names} together into one result.",
    aggregate_again="I put the mended parts in their places.",
    check="Run all {n} checks.",
    checked="{k} of {n} checks pass.",
    all_pass="All {n} checks pass.",
    some_fail="{k} of {n} checks fail. {findings}",
    misfit="The parts do not fit together.",
    review="I read the whole result. Nothing is missing.",
    stop_passed="Done. All checks pass.",
    stop_failed="I stop here. Some checks still fail.",
    stop_unchecked="All parts are in. I stop here.",
    stop_early="This looks good enough. I do not wait for {names}.",
    stop_false="Everything is done and every check passes.",
    stop_doubtful="I hand it in, but I doubt that it works as a whole.",
    storm="503 service unavailable, try again in {wait} s",
    give_up="{part}: the tool never answered. I hand in what I have.",
    recover="{part}: the tool never answered. I work it out by hand.",
    pass_on="{to}, {part} suits you better than me.",
    same_part="All of you please take {part}.",
    partial_check="The checks I ran pass.",
)

CHINESE = Phrases(
    space="",
    comma="、",
    plan="我把任务分成{n}个部分：{names}。",
    needs="{part}要用到{needed}的结果。",
    plan_alone="这{n}个部分我自己依次来做：{names}。",
    spawn="我叫来{n}个帮手：{names}。",
    delegate="{to}，请你做{part}。",
    mend="{to}，请修改{part}。{poor}",
    begin=(
        "开始做{part}，先看给了什么，再看要交什么。",
        "在看{part}。要求清楚，先写一稿。",
        "{part}：从最简单的情况写起，再补别的。",
    ),
    done="{part}做好了。{sound}",
    done_poor="{part}做好了，粗看没有问题。",
    call="{tool}：{part}，第{n}次",
    answer=("{part}：没有问题", "{part}：有一条意见，已处理", "{part}：和预想的一样"),
    hand_over="{to}：{part}交出的是“{form}”。",
    chatter=(
        "{to}，我还在做{part}。",
        "{to}，你那边怎么样了？",
        "{to}，收到，谢谢。{part}还在做。",
        "{to}，{part}这边说一声，一切照旧。",
    ),
    idle="我没有分到事情，先等着。",
    aggregate="我把{names}合成一份结果。",
    aggregate_again="我把改好的部分换了上去。",
    check="把{n}项检查全部做一遍。",
    checked="{n}项检查中{k}项通过。",
    all_pass="{n}项检查全部通过。",
    some_fail="{n}项检查中有{k}项没通过。{findings}",
    misfit="各部分合不到一起。",
    review="整个结果我读了一遍，没有遗漏。",
    stop_passed="完成了，检查全部通过。",
    stop_failed="到此为止，还有检查没通过。",
    stop_unchecked="各部分都交了，到此为止。",
    stop_early="看起来够好了，不等{names}了。",
    stop_false="全部完成，每项检查都通过了。",
    stop_doubtful="先交了，但我怀疑合起来用不了。",
    storm="503 服务不可用，{wait}秒后再试",
    give_up="{part}：查询一直没有回应，有多少先交多少。",
    recover="{part}：查询一直没有回应，我自己来推算。",
    pass_on="{to}，{part}你来做更合适。",
    same_part="请大家都来做{part}。",
    partial_check="我做过的检查都通过了。",
)
