#!/usr/bin/env python3
"""Whole folders as the tools leave them (bloom, gpt2, llama, qwen3 and t5-clone of them lie in saved/), nothing cut: model, config, generation config, tokenizer files, training_args.bin, model card.
transformers 5.17, trl and peft of PyPI on the CPU, float32, seed 7. One folder a set under OUT, expected.json beside the files says what to find.

    python make_saved.py OUT
    <family>/             save_pretrained of model and tokenizer (no length limit: model_max_length is 10^30 and some)
    gpt2-512/             the same with model_max_length 512
    trainer-<family>/     HF Trainer's output_dir after 4 steps: root (save_model) and checkpoint-2, checkpoint-4
    sft-lora-<family>/    TRL's SFTTrainer with LoRA: adapter, README.md, checkpoint-2
    t5-clone/             as a git-LFS clone of t5-small holds it: config.json, model.safetensors, pytorch_model.bin, spiece.model, no tokenizer_config.json
expected.json: ids of six strings; loss of four rows (labels = ids, next token, mean over tokens); losses logged by the run."""
import json, os, shutil, sys, torch
HERE = os.path.dirname(os.path.abspath(__file__)); OUT = sys.argv[1] if len(sys.argv) > 1 else HERE + "/saved"
import transformers; from transformers import AutoModelForCausalLM, BloomConfig, DataCollatorForSeq2Seq, GPT2Config, LlamaConfig, PreTrainedTokenizerFast, Qwen3Config, T5Config, T5ForConditionalGeneration, Trainer, TrainingArguments
transformers.logging.set_verbosity_error(); os.environ['WANDB_DISABLED'] = 'true'
ROWS = ['The quick brown fox jumps over the lazy dog.', 'Ein Satz auf Deutsch, mit Umlauten: äöü.', 'def f(x):\n    return x + 1\n', 'One, two, three; 12345 and 6.789!']
MORE = ['  two leading blanks', 'emoji 👩‍👩‍👧 end']
TOK = {'bloom': ('bloom', dict(unk_token='<unk>', bos_token='<s>', eos_token='</s>', pad_token='<pad>')), 'gpt2': ('gpt2', dict(eos_token='<|endoftext|>', bos_token='<|endoftext|>')), 'llama': ('llama2', dict(bos_token='<s>', eos_token='</s>', unk_token='<unk>')), 'qwen3': ('qwen', dict(eos_token='<|im_end|>', pad_token='<|endoftext|>'))}
def tok(fam, limit=None):
    name, special = TOK[fam]; f = f'{HERE}/tokenizers/{name}/tokenizer.json'; have = json.load(open(f)); words = {t['content'] for t in have.get('added_tokens', [])} | set(have['model'].get('vocab', {}))
    t = PreTrainedTokenizerFast(tokenizer_file=f, **{k: v for k, v in special.items() if v in words}, **({'model_max_length': limit} if limit else {}))
    if t.eos_token is None: t.add_special_tokens({'eos_token': '</s>'})
    if fam == 'qwen3': t.chat_template = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    return t
def model(fam, V):
    torch.manual_seed(7)
    c = {'bloom': lambda: BloomConfig(vocab_size=V, hidden_size=32, n_layer=2, n_head=4, hidden_dropout=0.0, attention_dropout=0.0),
         'gpt2': lambda: GPT2Config(vocab_size=V, n_embd=32, n_layer=2, n_head=4, n_positions=128, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0),
         'llama': lambda: LlamaConfig(vocab_size=V, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=128),
         'qwen3': lambda: Qwen3Config(vocab_size=V, hidden_size=32, intermediate_size=80, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=128, tie_word_embeddings=True)}[fam]()
    return AutoModelForCausalLM.from_config(c, attn_implementation='eager').float()
def losses(m, t):
    m.eval(); out = []
    for r in ROWS:
        i = torch.tensor([t(r)['input_ids']])
        with torch.no_grad(): lg = m(input_ids=i).logits[0, :-1].double()
        out.append(float(torch.nn.functional.cross_entropy(lg, i[0, 1:])))
    return out
def expect(d, **k): json.dump(k, open(d + '/expected.json', 'w'), indent=1, ensure_ascii=False)
class Rows(torch.utils.data.Dataset):
    def __init__(s, t): s.x = [t(r, truncation=True, max_length=48)['input_ids'] for r in ROWS * 4]
    def __len__(s): return len(s.x)
    def __getitem__(s, i): return {'input_ids': s.x[i], 'labels': list(s.x[i])}
for fam in TOK:
    for suffix, limit in (('', None), ('-512', 512))[: 2 if fam == 'gpt2' else 1]:
        t = tok(fam, limit); m = model(fam, len(t)); d = f'{OUT}/{fam}{suffix}'; shutil.rmtree(d, ignore_errors=True); m.save_pretrained(d); t.save_pretrained(d)
        expect(d, ids={r: t(r)['input_ids'] for r in ROWS + MORE}, loss=dict(zip(ROWS, losses(m, t))))
for fam in ('bloom', 'qwen3'):
    t = tok(fam); t.pad_token = t.pad_token or t.eos_token; m = model(fam, len(t)); d = f'{OUT}/trainer-{fam}'; shutil.rmtree(d, ignore_errors=True)
    a = TrainingArguments(d, max_steps=4, save_steps=2, logging_steps=1, per_device_train_batch_size=2, learning_rate=1e-3, report_to=[], use_cpu=True, seed=7)
    tr = Trainer(m, a, train_dataset=Rows(t), data_collator=DataCollatorForSeq2Seq(t, padding=True, label_pad_token_id=-100), processing_class=t); tr.train(); tr.save_model(); tr.save_state()
    expect(d, log=[h for h in tr.state.log_history], loss=dict(zip(ROWS, losses(m, t))))
try:
    from trl import SFTTrainer, SFTConfig; from peft import LoraConfig; from datasets import Dataset
    fam = 'qwen3'; t = tok(fam); t.pad_token = t.pad_token or t.eos_token; base = f'{OUT}/{fam}'; d = f'{OUT}/sft-lora-{fam}'; shutil.rmtree(d, ignore_errors=True)
    data = Dataset.from_list([{'messages': [{'role': 'user', 'content': r}, {'role': 'assistant', 'content': r[::-1]}]} for r in ROWS * 2])
    tr = SFTTrainer(base, SFTConfig(d, max_steps=4, save_steps=2, logging_steps=1, per_device_train_batch_size=2, learning_rate=1e-2, report_to=[], use_cpu=True, bf16=False, seed=7, max_length=96, gradient_checkpointing=False), train_dataset=data, processing_class=t, peft_config=LoraConfig(r=4, lora_alpha=8, lora_dropout=0.0, target_modules='all-linear', task_type='CAUSAL_LM'))
    tr.train(); tr.save_model(); tr.create_model_card(); expect(d, log=tr.state.log_history, merged_loss=dict(zip(ROWS, losses(tr.model.merge_and_unload(), t))))
except Exception as e: print('sft:', type(e).__name__, e)
torch.manual_seed(7); d = f'{OUT}/t5-clone'; shutil.rmtree(d, ignore_errors=True); os.makedirs(d)
import sentencepiece; V = sentencepiece.SentencePieceProcessor(f'{HERE}/tokenizers/t5/spiece.model').vocab_size()
m = T5ForConditionalGeneration(T5Config(vocab_size=(V + 100 + 127) // 128 * 128, d_model=32, d_kv=8, d_ff=64, num_layers=2, num_heads=4, dropout_rate=0.0, eos_token_id=1, pad_token_id=0, decoder_start_token_id=0)).float().eval()
m.save_pretrained(d); torch.save(m.state_dict(), d + '/pytorch_model.bin'); shutil.copy(f'{HERE}/tokenizers/t5/spiece.model', d); open(d + '/tf_model.h5', 'wb').write(b'\x89HDF\r\n\x1a\n' + bytes(64)); os.path.exists(d + '/generation_config.json') and os.remove(d + '/generation_config.json')
sp = sentencepiece.SentencePieceProcessor(d + '/spiece.model'); src = sp.encode('translate: one two three') + [1]; tgt = sp.encode('eins zwei drei') + [1]
with torch.no_grad(): l = float(m(input_ids=torch.tensor([src]), labels=torch.tensor([tgt])).loss)
expect(d, source=src, target=tgt, loss=l, note='the vocabulary is padded: ids beyond the pieces have no text')
