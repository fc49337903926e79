"""What span attributes are called: one table for OpenInference, GenAI (current and older), Traceloop, ADOT, ADK, Vercel AI.

All these conventions are still in development, so the table has a version, and it is part of the reader's version.
Each tuple lists the names of one thing, the most telling first; a span is asked for them in that order.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "2026-11"

# What a span is. The operation decides before the kind: it is the finer word of the two.
OPERATION = ("gen_ai.operation.name",)
KIND = ("openinference.span.kind", "traceloop.span.kind", "llm.request.type")
VERCEL_OPERATION = "ai.operationId"

#: Word of a convention, in lower case -> role of the span.
ROLES: Final[dict[str, str]] = {
    # GenAI operations
    "chat": "model_call", "text_completion": "model_call", "generate_content": "model_call", "completion": "model_call",
    "embeddings": "embedding", "retrieval": "retrieval", "create_agent": "create_agent", "invoke_agent": "agent_run",
    "invoke_workflow": "chain", "plan": "plan", "execute_tool": "tool_call",
    "create_memory": "memory", "update_memory": "memory", "upsert_memory": "memory", "delete_memory": "memory",
    "search_memory": "memory", "create_memory_store": "memory", "delete_memory_store": "memory",
    # OpenInference kinds
    "llm": "model_call", "embedding": "embedding", "chain": "chain", "retriever": "retrieval", "reranker": "rerank",
    "tool": "tool_call", "agent": "agent_run", "guardrail": "guardrail", "evaluator": "evaluation", "prompt": "prompt",
    "decision": "decision",
    # Traceloop kinds
    "workflow": "chain", "task": "chain", "handoff": "handoff",
}  # fmt: skip

#: End of a Vercel AI operation (`ai.generateText.doGenerate`) -> role; the outer operations only hold the inner ones.
VERCEL_ROLES: Final = {"doGenerate": "model_call", "doStream": "model_call", "doEmbed": "embedding", "toolCall": "tool_call"}

# Who acts. An explicit graph comes before names, a name before a place in the tree.
NODE_NAME = ("graph.node.name", "graph.node.id")
NODE_ID = "graph.node.id"
NODE_PARENT = "graph.node.parent_id"
AGENT_NAME = ("gen_ai.agent.name", "agent.name")
ENTITY_NAME = "traceloop.entity.name"
AGENT_ABOUT: Final = {"description": "gen_ai.agent.description", "id": "gen_ai.agent.id"}
HANDOFF_FROM = ("gen_ai.agent.handoff.source.name", "gen_ai.handoff.from_agent", "from_agent")
HANDOFF_TO = ("gen_ai.agent.handoff.target.name", "gen_ai.handoff.to_agent", "to_agent")
NOBODY = {"", "unknown", "none", "null"}

#: Part of an instrumentation's name -> what a span of kind AGENT without an agent's name is there. `outermost`: the agent
#: is the outermost one above a model call, the others are runnables; `wrapper`: it holds the run, no agent. Elsewhere: an agent.
UNNAMED_AGENTS: Final = {"langchain": "outermost", "openai_agents": "wrapper", "openai-agents": "wrapper"}
#: What instrumentations put around an agent's name when it becomes the name of a span.
NAME_PREFIXES = ("invoke_agent ", "create_agent ", "agent_run ")
NAME_SUFFIXES = (".run", ".agent")

# What is called, with what, and what comes back.
MODEL = (
    "gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "ai.response.model", "ai.model.id", "embedding.model_name",
)  # fmt: skip
TOOL_NAME = ("gen_ai.tool.name", "tool.name", "ai.toolCall.name", ENTITY_NAME)
RESPONSE_ID = ("gen_ai.response.id", "ai.response.id", "llm.response.id")
INPUT_TOKENS = (
    "gen_ai.usage.input_tokens", "llm.token_count.prompt", "gen_ai.usage.prompt_tokens", "llm.usage.prompt_tokens",
    "ai.usage.inputTokens", "ai.usage.promptTokens",
)  # fmt: skip
OUTPUT_TOKENS = (
    "gen_ai.usage.output_tokens", "llm.token_count.completion", "gen_ai.usage.completion_tokens", "llm.usage.completion_tokens",
    "ai.usage.outputTokens", "ai.usage.completionTokens",
)  # fmt: skip
INPUT = (
    "input.value", "gen_ai.tool.call.arguments", "traceloop.entity.input", "gcp.vertex.agent.tool_call_args", "ai.toolCall.args",
    "ai.prompt", "gen_ai.tool.input",
)  # fmt: skip
OUTPUT = (
    "output.value", "gen_ai.tool.call.result", "traceloop.entity.output", "gcp.vertex.agent.tool_response", "ai.toolCall.result",
    "ai.response.text", "ai.response.object", "gen_ai.tool.output", "final_result",
)  # fmt: skip
MIME_TYPES = ("input.mime_type", "output.mime_type")
ERROR_TYPE = "error.type"
SESSION = (
    "session.id", "gen_ai.conversation.id", "traceloop.association.properties.session_id", "ai.telemetry.metadata.sessionId",
    "session_id",
)  # fmt: skip

# What is said to a model and by it: as JSON text, as numbered attributes, as events of the span, or in the body of such an event.
SYSTEM = ("gen_ai.system_instructions",)
INPUT_MESSAGES = ("gen_ai.input.messages", "ai.prompt.messages", "gen_ai.prompt")
OUTPUT_MESSAGES = ("gen_ai.output.messages", "gen_ai.completion")
NUMBERED_INPUT = ("llm.input_messages.", "gen_ai.prompt.")
NUMBERED_OUTPUT = ("llm.output_messages.", "gen_ai.completion.")
INPUT_EVENTS = {"gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message"}
OUTPUT_EVENT = "gen_ai.choice"
DETAIL_EVENTS = {"gen_ai.client.inference.operation.details", "gen_ai.content.prompt", "gen_ai.content.completion"}
EVENT_NAME = "event.name"
EVENT_BODY = "body"
EXCEPTION = "exception"
EXCEPTION_SAYS = ("exception.type", "exception.message")

# How a tool call names the agent it is for: in its own name, or in an argument.
ASKING = ("ask_", "call_", "consult_", "query_", "invoke_", "run_", "use_", "delegate_to_", "delegate_task_to_", "delegate_")
TRANSFERRING = ("transfer_to_", "handoff_to_", "hand_off_to_", "handoff_", "switch_to_", "route_to_", "transfer_")
AGENT_ENDINGS = ("_agent", "_tool")
TARGET_ARGUMENTS = ("subagent_type", "agent_name", "target_agent", "to_agent", "coworker", "agent")
