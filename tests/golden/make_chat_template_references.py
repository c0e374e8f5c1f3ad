#!/usr/bin/env python3
"""Renders Jinja programs with the environment of transformers and writes what they gave.

    make_chat_template_references.py                  writes chat_templates/{programs,published}.json
    make_chat_template_references.py --show PROGRAM N prints what published/PROGRAM makes of conversation N

Needs transformers 5 and Jinja2 3.1.6. The clock stands still, at NOW.
"""

import datetime
import json
import pathlib
import sys

import jinja2
from transformers.utils import chat_template_utils

import jinja_programs

HERE = pathlib.Path(__file__).parent / "chat_templates"
NOW = datetime.datetime(2025, 3, 4, 15, 9, 26, 535897)


class StandingClock(datetime.datetime):
    @classmethod
    def now(cls):
        return NOW


chat_template_utils.datetime = StandingClock

WEATHER = {"type": "function", "function": {
    "name": "get_weather", "description": "Returns the weather.\nIn \"°C\".",
    "parameters": {"type": "object", "required": ["city"], "properties": {
        "city": {"type": "string", "description": "A city's name"},
        "unit": {"type": "string", "enum": ["C", "F"]},
        "days": {"type": "array", "items": {"type": "integer"}}}},
    "return": {"type": "string"}}}
CLOCK = {"type": "function", "function": {
    "name": "time", "description": "Tells the time.", "parameters": {"type": "object", "properties": {}}}}


def message(role, content, **more):
    return {"role": role, "content": content, **more}


def call(name, arguments, id="abcdefghi"):
    return {"id": id, "type": "function", "function": {"name": name, "arguments": arguments}}


USER, ANSWER = message("user", "What is 2 + 2?"), message("assistant", "It is 4.")
SYSTEM = message("system", "You are terse.")
AWKWARD = "  Grüße 你好 😀 \"quoted\" 'single' {braces} {{ x }} {% if %} \\back\\slash <tag> & \t\n\n "
TOOL_TURNS = [
    message("user", "Weather in Oslo?"),
    message("assistant", "", tool_calls=[call("get_weather", {"city": "Oslo", "days": [1, 2], "unit": None})]),
    message("tool", "{\"t\": -3.5}", name="get_weather", tool_call_id="abcdefghi"),
    message("assistant", "It is -3.5 °C."),
]

# Each is the variables besides the tokens and the date.
CONVERSATIONS = [
    {"messages": [USER, ANSWER]},
    {"messages": [SYSTEM, USER, ANSWER]},
    {"messages": [SYSTEM, USER, ANSWER, message("user", "And 3 + 3?")], "add_generation_prompt": True},
    {"messages": [message("user", AWKWARD), message("assistant", AWKWARD), message("user", ""),
                  message("assistant", "<think>\nhm\n</think>\n\nYes."), message("user", "Go on")],
     "add_generation_prompt": True},
    {"messages": [SYSTEM] + TOOL_TURNS, "tools": [WEATHER, CLOCK]},
    {"messages": TOOL_TURNS[:3], "tools": [WEATHER], "add_generation_prompt": True},
    {"messages": TOOL_TURNS + [message("user", "Thanks"), message("assistant", "Welcome")]},
    {"messages": [SYSTEM, USER, message("assistant", "It is 4.", reasoning_content="Two and two.", thinking="Two and two."),
                  message("user", "Sure?"), message("assistant", "Yes.", reasoning_content="Quite.", thinking="Quite.")]},
    {"messages": [message("system", [{"type": "text", "text": "Be brief."}]),
                  message("user", [{"type": "text", "text": "Look: "}, {"type": "text", "text": "here"}]),
                  message("assistant", [{"type": "text", "text": "I see."}])]},
    {"messages": [message("developer", "Answer in French."), USER, message("assistant", "Quatre.")]},
    {"messages": [message("user", ""), message("assistant", "")]},
    {"messages": [SYSTEM, USER], "add_generation_prompt": True, "enable_thinking": False, "reasoning_effort": "high"},
    {"messages": [USER, ANSWER, USER], "add_generation_prompt": True, "enable_thinking": True},
    {"messages": [ANSWER, ANSWER, SYSTEM]},
    {"messages": [USER, message("assistant", None, tool_calls=[call("time", {}), call("time", {"zone": "Ö"}, "jklmnopqr")]),
                  message("tool", "12:00", tool_call_id="abcdefghi"), message("tool", "13:00", tool_call_id="jklmnopqr")],
     "tools": [CLOCK], "add_generation_prompt": True},
    {"messages": [message("system", ""), message("user", [{"type": "image"}, {"type": "text", "text": "What is this?"}])],
     "add_generation_prompt": True},
]


def variables_of(conversation):
    return {"tools": None, "documents": None, "add_generation_prompt": False, "bos_token": "<s>", "eos_token": "</s>",
            "pad_token": "<pad>", "unk_token": "<unk>", **conversation}


def byte_offset(text, index):
    """The offset in UTF-8. Beyond the end, where a range of AssistantTracker may end, there is none."""
    return len(text[:index].encode()) if index <= len(text) else None


def render(program, variables):
    """Returns the text and the byte ranges of its generation blocks, or the exception."""
    try:
        compiled = chat_template_utils._compile_jinja_template(program)
        variables = dict(variables)
        first = [variables.pop(name, None) for name in ("messages", "tools", "documents", "add_generation_prompt")]
        text, ranges = chat_template_utils._render_with_assistant_indices(compiled, *first, **variables)
        text.encode()  # a lone surrogate is no text that could be tokenized
        return text, [[byte_offset(text, begin), byte_offset(text, end)] for begin, end in ranges], None
    except Exception as error:  # a program may fail in any way
        return None, None, error


def hash64(text):
    """FNV-1a."""
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return f"{value:016x}"


def small_programs():
    programs = ["{{ " + line + " }}" for line in jinja_programs.expressions()]
    for program in programs + jinja_programs.STATEMENTS:
        text, ranges, error = render(program, jinja_programs.VARIABLES)
        if error is not None:
            # The message is kept where it is the program's own.
            raised = type(error) is jinja2.exceptions.TemplateError
            yield {"program": program, "error": type(error).__name__, **({"raised": str(error)} if raised else {})}
        elif " at 0x" in text:
            # A text with an address is not kept: such a value has no text here.
            yield {"program": program, "error": "address"}
        else:
            yield {"program": program, "text": text, **({"generation": ranges} if ranges else {})}


def published():
    results = {}
    for path in sorted(HERE.glob("published/*/*")) + sorted(HERE.glob("*.jinja")):
        results[str(path.relative_to(HERE))] = outcomes = []
        for conversation in CONVERSATIONS:
            text, ranges, error = render(path.read_text(), variables_of(conversation))
            if error is not None:
                raised = type(error) is jinja2.exceptions.TemplateError
                outcomes.append({"raised": str(error)} if raised else {"error": type(error).__name__})
            else:
                outcomes.append([len(text.encode()), hash64(text)] + ([ranges] if ranges else []))
    return results


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "--show":
        text, ranges, error = render((HERE / sys.argv[2]).read_text(), variables_of(CONVERSATIONS[int(sys.argv[3])]))
        sys.stdout.write(repr(error) + "\n" if error is not None else text)
        return
    programs = {"variables": jinja_programs.VARIABLES, "programs": list(small_programs())}
    (HERE / "programs.json").write_text(json.dumps(programs, ensure_ascii=False, indent=0) + "\n")
    outcomes = {"conversations": [variables_of(conversation) for conversation in CONVERSATIONS], "published": published()}
    lines = [f'{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}' for name, value in outcomes["published"].items()]
    (HERE / "published.json").write_text('{"conversations": ' + json.dumps(outcomes["conversations"], ensure_ascii=False)
                                         + ',\n"published": {\n' + ",\n".join(lines) + "\n}}\n")


if __name__ == "__main__":
    main()
