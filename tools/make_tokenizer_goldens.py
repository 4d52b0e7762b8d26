#!/usr/bin/env python3
"""Makes tests/golden/tokenizer/{gpt2,smollm,llama3,qwen2,regex}: small tokenizers and their ids.

  python3 -m venv v && v/bin/pip install tokenizers==0.23.3 && v/bin/python THIS_FILE

Each folder gets a tokenizer.json with the pre-tokenizer, normalizer and post-processor of that
family, trained here on the texts below, and ids.jsonl: line n belongs to line n of texts.jsonl and
holds `ids` (added tokens recognised) and `plain` (no added tokens) where that differs. Nothing is
taken from a published model but the regular expressions.
"""
import json
import random
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers
from tokenizers import pre_tokenizers, processors, trainers

TARGET = Path(__file__).resolve().parent.parent / "tests" / "golden" / "tokenizer"

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}" + TAIL
# Not one of the program's own rules: upper and lower case apart, contractions at the word's end.
CASED = (r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
         + CONTRACTIONS + r"?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
         + r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + CONTRACTIONS + r"?|\p{N}{1,3}"
         + r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")

SENTENCES = [
    "The library opens a model and answers; nothing else is asked of it.",
    "I'm sure you're right, but we've seen that they'll say he'd go. It's what she doesn't want.",
    "I'M SURE YOU'RE RIGHT, BUT WE'VE SEEN THAT THEY'LL SAY HE'D GO. IT'S WHAT SHE DOESN'T WANT.",
    "Der Zug fährt um halb acht über die Brücke; größere Züge müssen warten.",
    "L'été dernier, j'ai vu l'île où naît le fleuve. Qu'est-ce que c'est ?",
    "El niño corrió hacia el río, ¿verdad? ¡Sí, señor!",
    "Быстрая лиса перепрыгнула через ленивую собаку и убежала в лес.",
    "Η γρήγορη αλεπού πηδά πάνω από το τεμπέλικο σκυλί.",
    "השועל המהיר קופץ מעל הכלב העצלן.", "الثعلب السريع يقفز فوق الكلب الكسول ٢٠٢٤.",
    "तेज़ लोमड़ी आलसी कुत्ते के ऊपर कूदती है। १२३४५",
    "เร็วสุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ",
    "快速的棕色狐狸跳过了懒狗。今天天气很好，我们去公园吧！", "素早い茶色の狐がのろまな犬を飛び越える。カタカナとひらがな、々〇も。",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다.", "Con cáo nâu nhanh nhẹn nhảy qua con chó lười biếng.",
    "Çabuk kahverengi tilki tembel köpeğin üstünden atlar. İstanbul'da ılık.",
    "Ātrā brūnā lapsa lec pāri slinkajam sunim; žluťoučký kůň úpěl ďábelské ódy.",
    "ქართული ენა და ანბანი", "Հայերեն լեզուն", "አማርኛ ቋንቋ ነው።", "ᠮᠣᠩᠭᠣᠯ", "ភាសាខ្មែរ",
]
CODE = [
    "def add(a, b):\n    return a + b  # sum\n",
    "for (int i = 0; i < 10; ++i) {\n\tx[i] *= 2;\n}\n",
    "if (p != nullptr && *p == '\\0') return -1;",
    "#include <vector>\nstd::vector<int> v{1, 2, 3};",
    "SELECT name, COUNT(*) FROM t WHERE x >= 3.14 GROUP BY name;\r\n",
    "<a href=\"https://example.org/?q=1&r=2#top\">link</a>", "let s = format!(\"{:?}\", x)?;",
    "$ make -j8 && ./run --help | grep -i 'usage'\n",
    "{\"key\": [1, 2.5, null, true], \"k2\": \"v\"}",
    "x = [[0]*3 for _ in range(3)]\n\n\nprint(x)\n", "a->b.c::d @@ -1,7 +1,7 @@",
    "/* nested */ // end",
]
DIGITS = ["1", "12", "123", "1234", "12345", "1234567", "3.14159", "1,000,000", "0x1F",
          "2024-12-31",
          "a1b22c333d4444", "½ ⅓ ²³ Ⅷ ①②③④", "١٢٣٤٥", "१२३४", "１２３４", "12 345 678", " 1 22  333",
          "v1.2.3-rc4", "+49 (0)30 1234567", "10%", "№5", "𝟘𝟙𝟚𝟛", "万12億", "〡〢〣〤"]
CONTRACTED = ["'s", "'S", "'ſ", "'ſs", "'t'T", "'re'RE'rE", "'ve", "'VE", "'m", "'ll", "'lL",
          "'l",
              "'d", "''s", "' s", "don't", "DON'T", "l'été", "'tis", "rock'n'roll", "x'smart",
              "it’s", "'r", "'v", "'rex", "'velvet", "'llama", "'sd'dm", " 's", "\n's", "'é",
          "'1"]
SPACES = ["", " ", "  ", "   ", "\n", "\n\n", "\r\n", "\r\n\r\n", "\t", "\t\t", " \n", "\n ",
          " \n ",
          "  \n\n  x", "x  ", "x \n", "x\n y", "a b", "a  b", "a   b", "a\tb", "a\t\tb",
          "a\u00a0b",
          "a\u3000b", "a \u3000 b", "\u2028\u2029x", "\u0085 x", "a\u200bb", "a\u202fb \u205f",
          "\x0b\x0cx",
          "\x1c\x1d x", "\u180e x", "\ufeffx", "  !", " !\n\n", "!\r\n\r\nx", "\n\n1", "  1",
          " \r x", "x\r"]
MARKS = ["e\u0301", "\u00e9", "\u0301", " \u0301a", "a\u0323\u0301", "a\u0301\u0323",
          "\u1ea5 \u0061\u0302\u0301",
         "\u212b \u2126 \u212a", "\u1100\u1161\u11a8 \uac01", "\u0958 \u0915\u093c",
         "\ufb01 \ufb01x",
         "q\u0307\u0323 q\u0323\u0307", "\u0344", "\u2000x", "\u0f73\u0f71\u0f72", "\U0001d15e",
         "o\u0308\u0304\u0301 o\u0304\u0308", "!\u0301!", "1\u0301", "\u0301\u0302\u0303"]
EMOJI = ["😀", "😀😀", "👍🏽", "👩‍👩‍👧‍👦", "🇩🇪🇫🇷", "❤️", "1️⃣", "a😀b", " 😀 ",
          "🏴\U000e0067\U000e0062\U000e007f",
         "☃︎ ☃️", "🎉!\n", "\u200d", "x\u200dy", "©®™", "→⇒∑∫√", "₿€£¥", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢", "𠀀𠀁", "𐍈𐌰"]
ODD = ["\x00", "a\x00b", "\x01\x02\x03", "\x7f", "\ue000\ue001", "\ufffd", "\ufffe", "\U0010ffff",
       "\u0378", "\u00ad", "a\u00adb", "\u2060x", "...", "!?!?", "--- ***", "(a)[b]{c}", "a_b_c",
       "__init__",
       "#!$%&", "~`^|\\", "«»‹›„“”", "¿¡", "…—–", "・、。", "ー々", "ﾊﾝｶｸ", "，。！？", "<|", "<|end|",
       "|>"]
ADDED = ["<|begin|>", "<|end|>", "<tool>", "<|begin|>Hi<|end|>", "x<|end|>\n<|begin|>",
          "<|end|><|end|>",
         "<too<tool>l>", "<tool>er", "a <tool> b", "<|END|>", "<|end|", "<|end|>>",
         "é<tool>\u0301", "<to\u0301ol>"]


def texts():
    rng = random.Random(3)
    pool = SENTENCES + CODE + DIGITS + CONTRACTED + SPACES[1:] + MARKS + EMOJI + ODD
    out = SENTENCES + CODE + DIGITS + CONTRACTED + SPACES + MARKS + EMOJI + ODD + ADDED
    while len(out) < 300:
        parts = [rng.choice(pool)[:rng.randint(1, 20)] for _ in range(rng.randint(2, 5))]
        out.append(rng.choice(["", " ", "\n"]).join(parts))
    while len(out) < 340:  # letters, marks, numbers and spaces in any order
        letters = "aB'sſéж中の1２ \n\r\t\u0301-!。\u3000😀\u200d\u00a0"
        out.append("".join(rng.choice(letters) for _ in range(24)))
    return out


def byte_level(regex):
    return pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=False, use_regex=regex)


def split(pattern):
    return pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(pattern), "isolated"), byte_level(False)])


FAMILIES = {
    "gpt2": byte_level(True),
    "smollm": pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), byte_level(True)]),
    "llama3": split(LLAMA3),
    "qwen2": split(QWEN2),
    "regex": split(CASED),
}


def make(family):
    tokenizer = Tokenizer(models.BPE(ignore_merges=family == "llama3"))
    if family == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = FAMILIES[family]
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator(
        SENTENCES + CODE + CONTRACTED + SPACES + EMOJI,
        trainers.BpeTrainer(vocab_size=700, initial_alphabet=alphabet, show_progress=False))
    spec = json.loads(tokenizer.to_str())
    if family == "llama3":
        # A vocabulary entry that merges do not reach: only ignore_merges finds it.
        spec["model"]["vocab"]["\u0120LIBRARY"] = len(spec["model"]["vocab"])
    plain = Tokenizer.from_str(json.dumps(spec))
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.add_special_tokens([AddedToken("<|begin|>", special=True, normalized=False),
                                  AddedToken("<|end|>", special=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("<tool>", special=False, normalized=True)])
    if family == "llama3":
        begin = tokenizer.token_to_id("<|begin|>")
        tokenizer.post_processor = processors.Sequence([
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
                                          special_tokens=[("<|begin|>", begin)])])
    return tokenizer, plain


def main():
    lines = texts() + ["THE LIBRARY"]
    (TARGET / "texts.jsonl").write_text(
        "".join(json.dumps({"text": t}, ensure_ascii=True) + "\n" for t in lines))
    for family in FAMILIES:
        tokenizer, plain = make(family)
        folder = TARGET / family
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "tokenizer.json").write_text(
            json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
        with (folder / "ids.jsonl").open("w") as file:
            for text in lines:
                case = {"ids": tokenizer.encode(text, add_special_tokens=False).ids}
                without = plain.encode(text, add_special_tokens=False).ids
                if without != case["ids"]:
                    case["plain"] = without
                file.write(json.dumps(case, separators=(",", ":")) + "\n")
        print(family, tokenizer.get_vocab_size(), "tokens,", len(lines), "lines")


if __name__ == "__main__":
    main()
