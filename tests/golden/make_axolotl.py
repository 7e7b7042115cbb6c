#!/usr/bin/env python3
"""make_axolotl.py OUT - prompts that axolotl's user-defined data sets make of records.

axolotl 0.19.0 (its own code; torch and its logging are not needed for this and are left out).
Each row of axolotl.jsonl: the mapping `type`, records, and for each the prompt and completion.
"""
import json
import logging
import sys
import types

quiet = types.ModuleType("axolotl.utils.logging")
quiet.get_logger = logging.getLogger
sys.modules["axolotl.utils.logging"] = quiet
utils = types.ModuleType("axolotl.utils")
utils.__path__ = []
sys.modules["axolotl.utils"] = utils
from axolotl.prompt_strategies.user_defined import UserDefinedDatasetConfig, load  # noqa: E402

plain = [{"instruction": "Add.", "input": "1 2", "output": "3"},
         {"instruction": "Say {hi}.", "input": "", "output": "hi", "system": "Be brief."},
         {"instruction": "Go on", "input": None, "output": " x\n", "system": ""},
         {"instruction": "é\n", "output": "ü", "system": None}]
odd = [{"the question": "Why?", "c.ontext": "It's {so}", "answer": "Because", "who's": "A sage"},
       {"the question": "How?", "answer": "So"}]
cases = [
    ({"field_output": "output"}, plain),
    ({"format": "[INST] {instruction} {input} [/INST]",
      "no_input_format": "[INST] {instruction} [/INST]"}, plain),
    ({"system_prompt": "You {help}.", "system_format": "<<SYS>>{system}<</SYS>>\n\n",
      "format": "{input}\n{instruction}{instruction}\n{{}}\n", "no_input_format": "-"}, plain),
    ({"system_prompt": "You help.", "system_format": ""}, plain),
    ({"system_prompt": "You help.\n", "field_system": ""}, plain),
    ({"system_prompt": "S ", "field_input": "", "no_input_format": "Q: {instruction}\nA: "}, plain),
    ({"system_prompt": "None", "field_system": "who's", "field_instruction": "the question",
      "field_input": "c.ontext", "field_output": "answer",
      "format": "### {instruction}\n> {input}\n"}, odd),
]


class Cfg:
    train_on_inputs = False
    sequence_len = 2048


with open(sys.argv[1], "w", encoding="utf-8") as out:
    for kind, records in cases:
        strategy = load(None, Cfg, UserDefinedDatasetConfig(**kind))
        made = []
        for r in records:
            instruction, text, output, system = strategy.parse_instruction_fields(r)
            prompt = next(strategy.prompter.build_prompt_w_system(system, instruction, text))
            made.append({"prompt": prompt, "completion": output})
        out.write(json.dumps({"type": kind, "records": records, "made": made}, ensure_ascii=False) + "\n")
