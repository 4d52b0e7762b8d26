"""Prompts with pictures on a tiny V4.1: the text model and the vision part of the goldens."""

import json
import pathlib
import shutil
import struct

from program import GOLDEN, Case

VISION = GOLDEN / "vision"
TEXT = GOLDEN / "deepseek_v41" / "long"  # of the same width
PLACEHOLDER = 500


def tensors(path):
    """(name, entry of the header, bytes) of a safetensors file."""
    data = path.read_bytes()
    length, = struct.unpack("<Q", data[:8])
    for name, entry in json.loads(data[8:8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            yield name, entry, data[8 + length + begin:8 + length + end]


class Images(Case):
    def setUp(self):
        super().setUp()
        self.model = pathlib.Path(self.folder.name) / "model"
        self.model.mkdir()
        config = json.loads((TEXT / "config.json").read_text())
        config["image_token_id"] = PLACEHOLDER
        config["vision_config"] = json.loads((VISION / "config.json").read_text())["vision_config"]
        (self.model / "config.json").write_text(json.dumps(config))
        shutil.copy(TEXT / "engram.json", self.model)
        header, body = {}, b""
        for file in (TEXT, VISION):
            for name, entry, data in tensors(file / "model.safetensors"):
                if name in header or name == "embed.weight" and file == VISION:
                    continue
                entry["data_offsets"] = [len(body), len(body) + len(data)]
                header[name] = entry
                body += data
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        (self.model / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
        for image in ("rgba.png", "grey.png"):
            shutil.copy(VISION / "images" / image, self.folder.name)

    def prompts(self, *lines):
        return self.file("p.jsonl", "".join(json.dumps(line) + "\n" for line in lines))

    def test_pictures_lie_beside_the_prompt_file(self):
        ids = [3, 4, PLACEHOLDER, 9]
        file = self.prompts({"ids": ids, "images": ["rgba.png"]},
                            {"ids": ids, "images": ["grey.png"]}, {"ids": [3, 4, 9]})
        lines = self.lines("generate", self.model, "--prompts", file, "--json", "--max-tokens", 4,
                           "--ignore-eos", "--logprobs")
        self.assertEqual([line["prompt_tokens"] for line in lines], [13, 13, 3])
        self.assertNotEqual(lines[0]["logprobs"], lines[1]["logprobs"])
        self.assertTrue(all(PLACEHOLDER not in line["ids"] for line in lines))

    def test_pictures_are_fitted_as_asked(self):
        file = self.prompts({"ids": [3, PLACEHOLDER], "images": ["rgba.png"]})
        answers = [self.lines("generate", self.model, "--prompts", file, "--json", "--logprobs",
                              "--max-tokens", 2, *options)[0]["logprobs"]
                   for options in ([], ["--image-profile", "native"], ["--image-profile", "api"],
                                   ["--image-decode", "strip"])]
        self.assertEqual(answers[0], answers[1])
        self.assertNotEqual(answers[0], answers[2])
        self.assertNotEqual(answers[0], answers[3])

    def test_a_picture_that_is_wrong_is_named(self):
        self.file("cut.png", (VISION / "broken" / "truncated.png").read_bytes())
        for images, says in ((["cut.png"], ["cut.png", "Decode"]), ([], ["ImageCountMismatch"]),
                             (["grey.png"] * 2, ["ImageCountMismatch", "2 images"]),
                             (["none.png"], ["none.png"])):
            file = self.prompts({"ids": [3, PLACEHOLDER], "images": images})
            self.fails(2, "generate", self.model, "--prompts", file, "--json", says=says)
