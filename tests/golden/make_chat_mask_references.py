"""Makes tests/golden/chat_masks: conversations with the text that the loss is on.

    python tests/golden/make_chat_mask_references.py

generation.json  programs with {% generation %}, what transformers 5.23 renders with them, and the stretches that
                 it notes for return_assistant_tokens_mask
named.json       the built-in templates, from an implementation of their formats without Jinja
found.json       the families' own programs, which have no {% generation %}, with the conversations of
                 tokenizers/chat: the stretches by the definition of `found`; null where it tells none

Stretches are [begin, end) in bytes of the UTF-8 text. A case without text is one that is refused.
"""

import json
import pathlib

from transformers.utils.chat_template_utils import render_jinja_template

OUT = pathlib.Path(__file__).resolve().parent / "chat_masks"

# The special tokens of the families' programs: (bos, eos).
ENDS = {"qwen": ("", "<|im_end|>"), "chatml": ("", "<|im_end|>"), "llama3": ("<|begin_of_text|>", "<|eot_id|>"),
        "mistral": ("<s>", "</s>"), "gemma": ("<bos>", "<eos>")}

PROGRAMS = {
    "turns": ("{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' %}"
              "{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}{{ '\n' }}{% else %}"
              "{{ m.content + '<|im_end|>\n' }}{% endif %}{% endfor %}"),
    # White space control around the tags, and blocks over several lines.
    "blocks": """{{- bos_token }}
{%- for message in messages %}
    {%- if message.role == "assistant" %}
        {{- "<a> " }}
        {%- generation -%}
            {{ message.content | trim }}
            {{- eos_token }}
        {%- endgeneration %}
    {%- else %}
        {{- "<" + message.role + "> " + message.content | trim }}
    {%- endif %}
{% endfor %}""",
    # Two blocks a turn, and none in turns without an answer.
    "reasoning": """{%- for m in messages -%}
[{{ m.role }}]
{%- if m.role == 'assistant' -%}
{%- if m.reasoning_content -%}
{% generation %}<think>{{ m.reasoning_content }}</think>{% endgeneration %}
{%- endif -%}
|
{%- for call in m.tool_calls or [] -%}
{% generation %}{{ call.function | tojson }};{% endgeneration %}
{%- endfor -%}
{%- if m.content -%}
{% generation %}{{ m.content }}{% endgeneration %}
{%- endif -%}
{%- else -%}
{{ m.content }}
{%- endif -%}
{%- endfor -%}""",
}

CALL = [{"type": "function", "function": {"name": "weather", "arguments": {"city": "Zürich", "days": 2}}}]

CONVERSATIONS = [
    [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi there!"}],
    [{"role": "system", "content": "Sei kurz, größer nicht."}, {"role": "user", "content": "Ω?"},
     {"role": "assistant", "content": " 训练 🚀 \n"}, {"role": "user", "content": "<|im_end|>"},
     {"role": "assistant", "content": ""}],
    [{"role": "user", "content": "Q"}, {"role": "assistant", "content": "a", "reasoning_content": "hm, é"},
     {"role": "user", "content": "R"}, {"role": "assistant", "content": "b"}],
    [{"role": "user", "content": "Weather?"}, {"role": "assistant", "content": "", "tool_calls": CALL},
     {"role": "tool", "content": "rain"},
     {"role": "assistant", "content": "It rains.", "reasoning_content": "r", "tool_calls": []}],
    [{"role": "user", "content": "no answer"}],
]


def to_bytes(text, ranges):
  return [[len(text[:begin].encode()), len(text[:end].encode())] for begin, end in ranges]


def generation_cases():
  out = {}
  for name, program in PROGRAMS.items():
    cases = []
    for messages in CONVERSATIONS:
      keys = {key for message in messages for key in message}
      if name != "reasoning" and keys & {"reasoning_content", "tool_calls"}:
        continue  # which these programs do not read
      texts, ranges = render_jinja_template([messages], chat_template=program, bos_token="<s>", eos_token="</s>",
                                            return_assistant_tokens_mask=True)
      cases.append({"messages": messages, "text": texts[0], "target": to_bytes(texts[0], ranges[0])})
    out[name] = {"program": program, "cases": cases}
  return out


class Refused(Exception):
  pass


class Text:
  """Text that is written piece by piece, some of it with loss."""

  def __init__(self):
    self.data, self.target = b"", []

  def add(self, text, loss=False):
    if loss:
      self.target.append([len(self.data), len(self.data + text.encode())])
    self.data += text.encode()


def check_order(messages):
  for i, message in enumerate(messages):
    if (message["role"] == "user") != (i % 2 == 0):
      raise Refused


def chatml(messages):
  out = Text()
  for m in messages:
    out.add(f"<|im_start|>{m['role']}\n")
    out.add(m["content"] + "<|im_end|>", m["role"] == "assistant")
    out.add("\n")
  return out


def llama3(messages):
  out = Text()
  out.add("<bos>")
  for m in messages:
    out.add(f"<|start_header_id|>{m['role']}<|end_header_id|>\n\n")
    out.add(m["content"].strip() + "<|eot_id|>", m["role"] == "assistant")
  return out


def mistral(messages):
  out = Text()
  system = messages[0]["content"] if messages[0]["role"] == "system" else None
  turns = messages if system is None else messages[1:]
  check_order(turns)
  out.add("<bos>")
  for i, m in enumerate(turns):
    if m["role"] not in ("user", "assistant"):
      raise Refused
    if m["role"] == "user":
      first = system + "\n\n" if system is not None and i + 1 == len(turns) else ""
      out.add(f"[INST] {first}{m['content']}[/INST]")
    else:
      out.add(" " + m["content"].strip() + "<eos>", True)
  return out


def gemma(messages):
  check_order(messages)  # which refuses a system message that comes first
  out = Text()
  out.add("<bos>")
  for m in messages:
    answer = m["role"] == "assistant"
    out.add(f"<start_of_turn>{'model' if answer else m['role']}\n")
    out.add(m["content"].strip() + "<end_of_turn>", answer)
    out.add("\n")
  return out


def alpaca(messages):
  if [m["role"] for m in messages] != ["user", "assistant"]:
    raise Refused
  out = Text()
  out.add("Below is an instruction that describes a task. Write a response that appropriately completes the request."
          f"\n\n### Instruction:\n{messages[0]['content']}\n\n### Response:")
  out.add(messages[1]["content"] + "<eos>", True)
  return out


def named_cases():
  conversations = []
  for folder in ("chatml", "mistral-v0.3"):
    path = pathlib.Path(__file__).resolve().parent / "tokenizers" / "chat" / folder / "cases.json"
    conversations += [case["messages"] for case in json.loads(path.read_text())]
  out = {}
  for write in (chatml, llama3, mistral, gemma, alpaca):
    cases = []
    for messages in conversations:
      try:
        text = write(messages)
        cases.append({"messages": messages, "text": text.data.decode(), "target": text.target})
      except Refused:
        cases.append({"messages": messages})
    out[write.__name__] = cases
  return out


CANARY = "\ue0c4nary"


def found(render, messages, index):
  """The stretch of the assistant's message `index` in the rendering of the whole conversation; None if it is
  uncertain.

  A turn is what rendering gains by the message over the conversation before it with add_generation_prompt, up to
  its end-of-turn mark: from the end of the prompt to the last character that is not white space. Where the message
  stands is told by another rendering, with a text in its place that is nowhere else: what surrounds that text
  surrounds the message.
  """
  content = messages[index]["content"]
  answer = content.rpartition("</think>")[2].strip(" \t\r\n")
  kept = content[:len(content) - len(content.rpartition("</think>")[2])]  # reasoning, which programs rewrite
  other = [dict(m) for m in messages]
  other[index]["content"] = kept + CANARY
  whole, marked = render(messages, False), render(other, False)
  turn = render(other[:index + 1], False)
  try:
    prompt = render(messages[:index], True)
  except Exception:  # a program may refuse a conversation without a question
    question = [{"role": "user", "content": "x"}]
    prompt = render(question, True)[len(render(question, False)):]
  if marked.count(CANARY) != 1 or turn.count(CANARY) != 1:
    return None
  before, behind = marked.split(CANARY)
  # The message in the whole conversation. (Without text of its own it may be anything between the two.)
  if not (whole.startswith(before) and whole.endswith(behind) and len(before) + len(behind) <= len(whole)):
    return None
  text_end = len(whole) - len(behind)
  # The turn begins behind the longest end of the prompt that stands before the message.
  ends = []
  for at in range(len(before) + 1):
    size = 0
    while size < min(at, len(prompt)) and before[at - 1 - size] == prompt[-1 - size]:
      size += 1
    ends.append((size, at))
  begin = max(ends)[1]
  mark = turn.split(CANARY)[1].rstrip(" \t\r\n")
  end = text_end + len(mark) if behind.startswith(mark) else text_end
  if not mark and not answer:
    end = text_end
  return [begin, end] if begin < end else None


def found_cases():
  out = {}
  for folder in sorted((pathlib.Path(__file__).resolve().parent / "tokenizers" / "chat").iterdir()):
    program = (folder / "chat_template.jinja").read_text()
    bos, eos = ENDS[next(name for name in ENDS if folder.name.startswith(name))]

    def render(messages, prompt):
      texts, _ = render_jinja_template([messages], chat_template=program, bos_token=bos, eos_token=eos,
                                       add_generation_prompt=prompt)
      return texts[0]

    out[folder.name] = cases = []
    for case in json.loads((folder / "cases.json").read_text()):
      if "text" not in case:
        cases.append([])
        continue
      stretches = [found(render, case["messages"], i) for i, m in enumerate(case["messages"]) if m["role"] == "assistant"]
      cases.append([s and to_bytes(case["text"], [s])[0] for s in stretches])
  return out


def main():
  OUT.mkdir(exist_ok=True)
  (OUT / "found.json").write_text(json.dumps(found_cases(), separators=(",", ":")) + "\n")
  for name, cases in (("generation", generation_cases()), ("named", named_cases())):
    (OUT / f"{name}.json").write_text(json.dumps(cases, ensure_ascii=False, indent=1) + "\n")


if __name__ == "__main__":
  main()
