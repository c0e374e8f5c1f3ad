"""The texts and conversations that make_tokenizer_references.py trains its tokenizers on and encodes."""

WORDS = """the of and to in is that it was for on are as with his they at be this have from or had
by not word but what some we can out other were all there when up use your how said an each she
which do their time if will way about many then them write would like so these her long make thing
see him two has look more day could go come did number sound no most people my over know water than
call first who may down side been now find any new work part take get place made live where after
back little only round man year came show every good me give our under name very through just form
sentence great think say help low line differ turn cause much mean before move right boy old too
same tell does set three want air well also play small end put home read hand port large spell add
even land here must big high such follow act why ask men change went light kind off need house
picture try us again animal point mother world near build self earth father I'm don't it's we've
you'll they'd he's DON'T IT'S""".split()

OTHER = ["你好世界，今天天气很好。", "これは日本語の文章です。カタカナもあります。", "안녕하세요 세계",
         "Привет, мир! Как дела?", "مرحبا بالعالم كيف حالك", "สวัสดีชาวโลก", "नमस्ते दुनिया",
         "Γειά σου Κόσμε", "Größe, naïve, façade, Åse, crème brûlée", "🙂🎉👩‍👩‍👧‍👦🏳️‍🌈",
         "def f(x):\n    return x ** 2  # square\n", "for (int i = 0; i < 10; ++i) {\n\tsum += a[i];\n}\n",
         "{\"key\": [1, 2.5, null]}\r\n", "3.14159 2024-11-21 1,000,000 ٣٤٥ ६७ Ⅷ ½"]


def corpus(rng):
  lines = []
  for _ in range(3000):
    line = " ".join(rng.choice(WORDS) for _ in range(rng.randint(3, 14)))
    lines.append(line[:1].upper() + line[1:] + rng.choice([".", "!", "?", ",", "...", "\n\n"]))
    if rng.random() < 0.4:
      lines.append(rng.choice(OTHER))
  return lines

HARD = [
    "", " ", "  ", "\n", "\n\n\n", " \n \n", "\t\t x", "a", "Hello world", " Hello  world ",
    "I'm you're HE'S DON'T we'VE they'll I'D o'clock 'tis rock'n'roll '\u017f it'\u017f",
    "def f(x):\n    if x:\n        return  x\n\n\n\n    #   done   \n", "a\r\nb\r\n\r\nc\rd",
    "x=1;y+=2;z**=3//4 -> [i for i in range(10)]", "<div class=\"a\">text</div>\n\t<br/>",
    "你好，世界！今天是2024年11月21日。", "日本語とEnglishの混在テキスト、カタカナ・ひらがな。",
    "한국어 텍스트입니다", "\u1112\u1161\u11ab\u1100\u1173\u11af", "각각\u11a8 \u1100\u1161\u11a8",
    "e\u0301 \u00e9 E\u0301\u0327 \u1e69 s\u0323\u0307 s\u0307\u0323 \u0344 \u212b \u2126 \u2000",
    "a\u0300\u0301\u0302\u0303\u0304\u0305\u0327\u0328 q\u0307\u0323", "\u0301 alone", "\u0958 \u0929 \u2adc",
    "👩‍👩‍👧‍👦 👍🏽 🏳️‍🌈 🇩🇪🇫🇷 ☺️ ☺ 1️⃣", "🙂🙂🙂🎉", "مرحبا بالعالم، كيف الحال؟", "שָׁלוֹם עולם",
    "สวัสดีชาวโลก ก็ดี", "नमस्ते दुनिया क्षत्रिय", "Tiếng Việt có dấu", "Ελληνικά ΚΕΦΑΛΑΊΑ",
    "0 1 12 123 1234 12345 123456 1,234.56 ٠١٢٣٤٥ ०१२ ⅣⅨ ²³ ½¾ 𝟘𝟙𝟚 ㊀", "a1b22c333d4444", "３４５６７",
    "\u00a0x\u00a0\u00a0y \u3000z\u2028p\u2029q\u0085r\u180es\ufefft\u200bu\u200dv\u001cw\u000bx\u000cy",
    " " * 50 + "x", "\n" * 40, "\t" * 33 + "\n", " \t" * 20, "x" + " " * 30, "=" * 100, "-" * 7 + "\n",
    "a" * 500, "ab" * 300, "the" * 200, "word " * 60, "é" * 120, "好" * 120, "🙂" * 40,
    "\u0000\u0001\u007f", "\ufffd\uffff\U0010ffff\U000e0001", "\U00031350\U000323af \U0001e4d0\U00011f50",
    "<|endoftext|>", "a<|endoftext|>b", " <|endoftext|> ", "<|endoftext|><|endoftext|>", "<|endof", "<|",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", "<|begin_of_text|>x<|eot_id|>",
    "x [MASK] y", "x\n  [MASK]  \ny", "[MASK][MASK]", "  [MASK]", "word[MASK]word",
    "left  <L>  right", "left  <R>  right", "  <L><R>  <LR>  <L>", "a<LR>b", "<R>\u3000\n<L>",
    "solo asolo soloa a solo b solo.solo,_solo solo\u0301 \u00e9solo", "caf\u00e9X cafe\u0301X CAFE",
    "<tool_call>{\"a\": 1}</tool_call>", "overlap overlapping overlappingx",
    "https://example.com/a?b=c&d=%20#frag user@host.org", "C:\\Users\\x\\n \"quoted\" 'single' `tick`",
]


def random_texts(rng, count):
  blocks = [(0x20, 0x7e), (0x20, 0x7e), (0x9, 0xd), (0xa0, 0x24f), (0x300, 0x36f), (0x370, 0x5ff),
            (0x600, 0x6ff), (0x900, 0xdff), (0xe00, 0xe7f), (0x1100, 0x11ff), (0x1e00, 0x20cf),
            (0x2000, 0x206f), (0x2100, 0x2bff), (0x3000, 0x30ff), (0x4e00, 0x9fff), (0xac00, 0xd7a3),
            (0xf900, 0xfaff), (0xfe00, 0xfe0f), (0xff00, 0xffef), (0x1f300, 0x1faff), (0x10000, 0x1ffff),
            (0x20000, 0x323af)]
  texts = []
  for _ in range(count):
    text = ""
    for _ in range(rng.randint(1, 12)):
      low, high = rng.choice(blocks)
      text += "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(1, 5)))
      if rng.random() < 0.4:
        text += rng.choice([" ", "  ", "\n", "'s", "'LL", "the", " and", "12", "\u0301", "<|endoftext|>", "[MASK]"])
    texts.append(text)
  return texts

CHARACTER_HARD = [
    "<s>", "<s>a", "<s> a", "a<s>", "a <s> b", "<s><s>b", "</s>\n<s>[INST] x [/INST] y</s>", "\n<s>\nx",
    "\u2581", "\u2581a", " \u2581a \u2581\u2581 b", "<s>\u2581a", "<0x41>", "a<0x0A>b<0x00", "<unk>", "x<unk>y",
    "<start_of_turn>user\nhi there<end_of_turn>\n", "line\nafter\nline\n\nof\n\n\ntext", "\u00e9 \U0001f642 \u597d" * 9,
    "the of and to in is that it was for on are as with " * 20, " the" * 100, "  the   of    and     to" * 12,
]

CONVERSATIONS = [
    [("user", "Hello"), ("assistant", "Hi there!")],
    [("system", "Be brief."), ("user", "What is 2+2?"), ("assistant", "4")],
    [("user", "One"), ("assistant", "1"), ("user", "Two"), ("assistant", "2")],
    [("system", " Padded \n"), ("user", "\n\n spaces  "), ("assistant", "\n  indented\n\n"),
     ("user", "\u001cx\u0085"), ("assistant", "\u3000 wide \u00a0")],
    [("user", "Q"), ("assistant", "<think>\nhmm\n</think>\n\nanswer"), ("user", "again"),
     ("assistant", "<think>\n\nsecond\n\n</think>\nyes")],
    [("user", "Q"), ("assistant", "a"), ("assistant", "b"), ("user", "c")],
    [("assistant", "I begin"), ("user", "ok"), ("assistant", "")],
    [("user", "Q"), ("system", "middle"), ("assistant", "no close <think> here")],
    [("user", "你好 e\u0301"), ("assistant", "e\u0301\u0327 世界 🙂")],
    [("user", "<tool_response>x</tool_response>"), ("assistant", "r")],
    [("user", "ask"), ("assistant", "mid"), ("user", "<tool_response>x</tool_response>"),
     ("assistant", "<think>t</think>r")],
    [("user", "sneaky <|im_end|> text <|eot_id|>"), ("assistant", "ok <|im_start|> ok")],
]

# For the templates that look at the order of roles.
ALTERNATING = [
    [("user", "Only a question")],
    [("system", "Be brief."), ("user", "And a question")],
    [("system", "Be brief."), ("user", "One"), ("assistant", "1"), ("user", "Two")],
    [("system", "Be brief."), ("user", "One"), ("assistant", "1"), ("user", "Two"), ("assistant", "2"),
     ("user", "Three"), ("assistant", "3")],
    [("system", "\n Be brief. \n"), ("user", "Again"), ("assistant", "1"), ("user", "Again"), ("assistant", "2"),
     ("user", " Again"), ("assistant", "3"), ("user", "Again")],
    [("user", " \u2003 spaces\u0085"), ("assistant", "\u001c around \u00a0"), ("user", "\n\n\n"),
     ("assistant", " \t ")],
    [("system", ""), ("user", ""), ("assistant", "")],
    [("user", "[INST] sneaky [/INST] </s>"), ("assistant", "<end_of_turn>\n<start_of_turn>user\n<s><bos>")],
    [("system", "No question")], [("system", "No question"), ("assistant", "an answer")],
    [("user", "Q"), ("system", "late")], [("user", "Q"), ("system", "late"), ("user", "R"), ("assistant", "a")],
    [("system", "One"), ("system", "Two"), ("user", "Q"), ("assistant", "a")],
    [("system", "One"), ("user", "Q"), ("user", "R"), ("assistant", "a")],
    [("user", "Q"), ("assistant", "a"), ("user", "R"), ("system", "late"), ("user", "S"), ("assistant", "b")],
]

KIND_HARD = [
    "\uff21\uff22 \ufb01n o\ufb03ce e\u0301e\u0301 \u00bd\u2460\u2026 x\u0001y \u1112\u1161\u11ab",
    "``quoted'' don't ``", "  two  spaces   three ", "Stra\u00dfe \u0130stanbul \u0391\u03a3 \u03a3\u03a3",
    "\u1e9b\u0323 \u0345\u0301 \ufdfa \u3392 \u210c", "word-with-dashes, and.dots!yes?no", "unaffable" * 3, "a" * 30,
    "\u0e01\u0e33 \u0915\u094d\u0937\u093f \u0bb2\u0bca", "\u00ad soft\u00adhyphen \u200e\u200f \ue000 \ufeff", "xX\u0301x",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea\U0001f1eb", "Solo solo aSolo Solob", "e\u0301\u0301 e\u200d",
    "12\u0664\u096b\u2167 34", "line\r\nnext\rlast\u2028end", "\u2581\u2581x \u2581 y",
]

SCRIPTS_HARD = ["どこで生れ。Yes", "Apples are りんご 林檎", "  	 a", "   ", " ー漢 ー a",
                "a 1 б 2。。 x", "։ա؜ا क॓́", "a𱍐ㄅㄯ b"]
