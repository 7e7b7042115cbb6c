/*
 * foreign - see foreign.h.
 *
 * Sources: onnx.proto, tflite schema.fbs, coremltools' Model.proto, executorch's
 * extension/flat_tensor and program schema ("ET12"), ggml's old llama.cpp loaders (ggml, ggmf,
 * ggjt, ggla), orbax-checkpoint's tree metadata, TensorFlow's SavedModel and tensor_bundle,
 * Megatron-LM's megatron/training/checkpointing.py, openvino's and TensorRT's file headers.
 */
#include "formats/foreign.h"

#include <fnmatch.h>
#include <string.h>

#include "formats/place.h"

/* Evidence: bytes at an offset, a name, entries of the folder; NULL is not checked. */
struct row {
    const char *magic;
    size_t      n, at;
    const char *glob;           /* pattern of its own name */
    const char *inside[2];      /* patterns of entries, files or folders */
    const char *what, *hint;
};

#define UNREAD  ", which is not read"
#define EXPORT  "save the model's weights as safetensors where it was exported from"
#define KERAS   "keras.saving.load_model, then save its weights as .npz"
#define GGML    "llama.cpp's convert-llama-ggml-to-gguf.py makes a GGUF file of it"
#define FLAX    \
    "transformers 4's from_pretrained(from_flax=True) loads it, save_pretrained writes it"
#define ORBAX   "orbax's PyTreeCheckpointer restores it; numpy.savez writes arrays that are read"
#define TF      "tf.train.load_checkpoint reads it; numpy.savez writes arrays that are read"
#define MCORE   \
    "Megatron's tools/checkpoint/convert.py or Megatron Bridge makes a Hugging Face model"

static const struct row files[] = {
    {.magic = "version https://git-lfs", .n = 23,
     .what = "a Git LFS pointer, the file itself was not fetched",
     .hint = "git lfs pull fetches it"},
    {.magic = "7z\xbc\xaf\x27\x1c", .n = 6, .what = "a 7z archive: unpack it first"},
    {.magic = "Rar!\x1a\x07", .n = 6, .what = "a RAR archive: unpack it first"},
    {.magic = "PAR1", .n = 4, .what = "a parquet file, which holds rows and no tensors"},
    {.magic = "TFL3", .n = 4, .at = 4, .what = "a TFLite model" UNREAD, .hint = EXPORT},
    {.magic = "ET12", .n = 4, .at = 4, .what = "an ExecuTorch program" UNREAD, .hint = EXPORT},
    {.magic = "FT01", .n = 4, .at = 4, .what = "ExecuTorch's external data" UNREAD, .hint = EXPORT},
    {.magic = "lmgg", .n = 4, .what = "an old ggml file" UNREAD, .hint = GGML},
    {.magic = "fmgg", .n = 4, .what = "an old ggml file (ggmf)" UNREAD, .hint = GGML},
    {.magic = "tjgg", .n = 4, .what = "an old ggml file (ggjt)" UNREAD, .hint = GGML},
    {.magic = "algg", .n = 4, .what = "an old ggml adapter (ggla)" UNREAD,
     .hint = "llama.cpp's convert_lora_to_gguf.py makes a GGUF file of the PEFT adapter"},
    {.magic = "\x89HDF\r\n\x1a\n", .n = 8, .glob = "*.keras*",
     .what = "a Keras model in HDF5" UNREAD, .hint = KERAS},
    {.magic = "\x89HDF\r\n\x1a\n", .n = 8, .glob = "tf_model.h5",
     .what = "transformers' TensorFlow weights" UNREAD,
     .hint = "transformers 4's from_pretrained(from_tf=True) loads it, save_pretrained writes it"},
    {.magic = "\x89HDF\r\n\x1a\n", .n = 8,
     .what = "an HDF5 file, of Keras or another program" UNREAD, .hint = KERAS},
    {.magic = "\x08", .n = 1, .glob = "*.onnx", .what = "an ONNX model" UNREAD,
     .hint = "onnx.numpy_helper and numpy.savez write its initializers as arrays that are read"},
    {.magic = "\x12\x07pytorch", .n = 9, .at = 2, .what = "an ONNX model" UNREAD,
     .hint = "onnx.numpy_helper and numpy.savez write its initializers as arrays that are read"},
    {.magic = "\x08", .n = 1, .glob = "*.mlmodel", .what = "a CoreML model" UNREAD, .hint = EXPORT},
    {.glob = "saved_model.pb", .what = "the graph of a TensorFlow SavedModel" UNREAD, .hint = TF},
    {.glob = "*.data-[0-9]*-of-[0-9]*",
     .what = "a part of a TensorFlow checkpoint" UNREAD, .hint = TF},
    {.glob = "*.ckpt*.index", .what = "the index of a TensorFlow checkpoint" UNREAD, .hint = TF},
    {.glob = "*.msgpack", .what = "Flax weights in msgpack" UNREAD, .hint = FLAX},
    {.glob = "*.pdparams", .what = "PaddlePaddle weights" UNREAD, .hint = EXPORT},
    {.glob = "*.caffemodel", .what = "a Caffe model" UNREAD, .hint = EXPORT},
    {.magic = "ftrt", .n = 4, .what = "a TensorRT engine, which has no weights to be read back"},
    {.glob = "*.engine", .what = "a TensorRT engine, which has no weights to be read back"},
    {.magic = "\x7f" "ELF", .n = 4, .what = "a program or shared library"},
};

static const struct row folders[] = {
    {.inside = {"saved_model.pb*", NULL}, .what = "a TensorFlow SavedModel" UNREAD, .hint = TF},
    {.inside = {"model.weights.h5", "metadata.json"},
     .what = "a Keras model" UNREAD, .hint = KERAS},
    {.inside = {"tf_model.h5", NULL}, .what = "transformers' TensorFlow weights" UNREAD,
     .hint = "transformers 4's from_pretrained(from_tf=True) loads it, save_pretrained writes it"},
    {.inside = {"flax_model*.msgpack*", NULL},
     .what = "transformers' Flax weights in msgpack" UNREAD, .hint = FLAX},
    {.inside = {"_CHECKPOINT_METADATA", NULL}, .what = "an Orbax checkpoint" UNREAD, .hint = ORBAX},
    {.inside = {"manifest.ocdbt", NULL}, .what = "an Orbax checkpoint" UNREAD, .hint = ORBAX},
    {.inside = {"_METADATA", NULL}, .what = "an Orbax checkpoint" UNREAD, .hint = ORBAX},
    {.inside = {"checkpoint", "*.index"}, .what = "a TensorFlow checkpoint" UNREAD, .hint = TF},
    {.inside = {"*.index", "*.data-[0-9]*-of-[0-9]*"},
     .what = "a TensorFlow checkpoint" UNREAD, .hint = TF},
    {.inside = {"Manifest.json", "Data"}, .what = "a CoreML package" UNREAD, .hint = EXPORT},
    {.inside = {"coremldata.bin", NULL}, .what = "a compiled CoreML model" UNREAD, .hint = EXPORT},
    {.inside = {"*.onnx", NULL}, .what = "a folder of ONNX models" UNREAD,
     .hint = "onnx.numpy_helper and numpy.savez write initializers as arrays that are read"},
    {.inside = {"openvino_model.xml", NULL}, .what = "an OpenVINO model" UNREAD, .hint = EXPORT},
    {.inside = {"*.engine", "config.json"},
     .what = "a TensorRT-LLM engine, which has no weights to be read back"},
    {.inside = {"latest_checkpointed_iteration.txt", "iter_[0-9]*"},
     .what = "the root of Megatron-LM's checkpoints", .hint = "its folders iter_* hold one each"},
    {.inside = {"mp_rank_[0-9]*", NULL},
     .what = "a Megatron-LM checkpoint in parts of a model" UNREAD, .hint = MCORE},
    {.inside = {"serialized_exported_program.json", "serialized_state_dict.*"},
     .what = "a program of torch.export before 2.8" UNREAD,
     .hint = "load it with torch.export.load and save it again, or save its state_dict"},
};

static bool has_entry(const struct ckpt_place *p, const char *glob)
{
    for (size_t i = 0; i < p->n_entry; i++)
        if (fnmatch(glob, p->entry[i].name, 0) == 0)
            return true;
    return false;
}

static bool fits(const struct row *r, const struct ckpt_place *p)
{
    const char *slash = strrchr(p->path, '/');

    if (r->glob && fnmatch(r->glob, slash ? slash + 1 : p->path, 0) != 0)
        return false;
    if (r->n && (p->head_len < r->at + r->n || memcmp(p->head + r->at, r->magic, r->n) != 0))
        return false;
    for (size_t k = 0; k < 2; k++)
        if (r->inside[k] && !has_entry(p, r->inside[k]))
            return false;
    return true;
}

bool foreign_tell(const struct ckpt_place *p, struct ckpt_err *err)
{
    const struct row *r = p->dir ? folders : files;
    size_t n = p->dir ? sizeof folders / sizeof *folders : sizeof files / sizeof *files;

    while (n > 0 && !fits(r, p)) {
        r++;
        n--;
    }
    if (n == 0)
        return false;
    ckpt_fail_as(err, CKPT_EUNSUPPORTED, "foreign", "%s: is %s", p->path, r->what);
    if (r->hint)
        ckpt_err_hint(err, "%s", r->hint);
    return true;
}
