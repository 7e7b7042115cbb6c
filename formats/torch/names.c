/*
 * torch/names - see torch/names.h.  Rows by producer, from files of each.  Python 2's module names
 * (__builtin__, copy_reg) are beside today's, since protocol 2 uses them.
 */
#include "formats/torch/names.h"

#include <stddef.h>
#include <string.h>

#include "formats/container/pickle/danger.h"
#include "libckpt/dtype.h"

static const struct torch_name rows[] = {
    /* torch: tensors */
    {"torch._utils", "_rebuild_tensor_v2", NAME_TENSOR_V2},
    {"torch._utils", "_rebuild_tensor", NAME_TENSOR_V2},
    {"torch._utils", "_rebuild_tensor_v3", NAME_TENSOR_V3},
    {"torch._utils", "_rebuild_parameter", NAME_PARAMETER},
    {"torch._utils", "_rebuild_parameter_with_state", NAME_PARAMETER},
    {"torch._tensor", "_rebuild_from_type_v2", NAME_FROM_TYPE},
    {"torch.tensor", "_rebuild_from_type_v2", NAME_FROM_TYPE},
    {"torch._tensor", "_rebuild_from_type", NAME_FROM_TYPE},
    {"torch._utils", "_rebuild_meta_tensor_no_storage", NAME_UNREAD},
    {"torch._utils", "_rebuild_sparse_tensor", NAME_UNREAD},
    {"torch._utils", "_rebuild_qtensor", NAME_QTENSOR},
    {"torch._utils", "_rebuild_nested_tensor", NAME_UNREAD},
    {"torch._utils", "_rebuild_wrapper_subclass", NAME_UNREAD},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", NAME_UNREAD},
    {"torch._utils", "_rebuild_device_tensor_from_numpy", NAME_UNREAD},
    {"torch._utils", "_rebuild_xla_tensor", NAME_UNREAD},
    /* torch: everything else */
    {"torch", "Size", NAME_INERT},
    {"torch", "device", NAME_INERT},
    {"torch", "Tensor", NAME_INERT},
    {"torch", "per_tensor_affine", NAME_INERT},
    {"torch", "per_channel_affine", NAME_INERT},
    {"torch", "per_tensor_symmetric", NAME_INERT},
    {"torch", "per_channel_symmetric", NAME_INERT},
    {"torch", "per_channel_affine_float_qparams", NAME_INERT},
    {"torch._C", "Generator", NAME_INERT},
    {"torch.nn.parameter", "Parameter", NAME_INERT},
    {"torch.nn.parameter", "Buffer", NAME_INERT},
    {"torch.serialization", "_get_layout", NAME_INERT},
    /* TorchScript's attributes, see also is_below */
    {"torch.jit._pickle", "build_intlist", NAME_INERT},
    {"torch.jit._pickle", "build_tensorlist", NAME_INERT},
    {"torch.jit._pickle", "build_doublelist", NAME_INERT},
    {"torch.jit._pickle", "build_boollist", NAME_INERT},
    {"torch.jit._pickle", "build_tensor_from_id", NAME_INERT},
    {"torch.jit._pickle", "restore_type_tag", NAME_INERT},
    /* Python */
    {"collections", "OrderedDict", NAME_DICT},
    {"collections", "defaultdict", NAME_INERT},
    {"collections", "Counter", NAME_INERT},
    {"collections", "deque", NAME_INERT},
    {"_codecs", "encode", NAME_BYTES},
    {"_io", "BytesIO", NAME_INERT},
    {"__builtin__", "set", NAME_SET},
    {"builtins", "set", NAME_SET},
    {"__builtin__", "frozenset", NAME_SET},
    {"builtins", "frozenset", NAME_SET},
    {"__builtin__", "bytes", NAME_BYTES},
    {"builtins", "bytes", NAME_BYTES},
    {"__builtin__", "bytearray", NAME_INERT},
    {"builtins", "bytearray", NAME_INERT},
    {"__builtin__", "complex", NAME_INERT},
    {"builtins", "complex", NAME_INERT},
    {"__builtin__", "list", NAME_INERT},
    {"builtins", "list", NAME_INERT},
    {"__builtin__", "dict", NAME_INERT},
    {"builtins", "dict", NAME_INERT},
    {"__builtin__", "tuple", NAME_INERT},
    {"builtins", "tuple", NAME_INERT},
    {"__builtin__", "int", NAME_INERT},
    {"builtins", "int", NAME_INERT},
    {"__builtin__", "float", NAME_INERT},
    {"builtins", "float", NAME_INERT},
    {"__builtin__", "str", NAME_INERT},
    {"builtins", "str", NAME_INERT},
    {"__builtin__", "bool", NAME_INERT},
    {"builtins", "bool", NAME_INERT},
    {"__builtin__", "xrange", NAME_INERT},
    {"builtins", "range", NAME_INERT},
    {"__builtin__", "slice", NAME_INERT},
    {"builtins", "slice", NAME_INERT},
    {"__builtin__", "object", NAME_INERT},
    {"builtins", "object", NAME_INERT},
    {"copy_reg", "_reconstructor", NAME_INERT},
    {"copyreg", "_reconstructor", NAME_INERT},
    {"argparse", "Namespace", NAME_INERT},
    {"datetime", "timedelta", NAME_INERT},
    {"pathlib", "PosixPath", NAME_INERT},
    {"pathlib._local", "PosixPath", NAME_INERT},
    {"pathlib", "PurePosixPath", NAME_INERT},
    {"types", "SimpleNamespace", NAME_INERT},
    {"__builtin__", "getattr", NAME_GETATTR},
    {"builtins", "getattr", NAME_GETATTR},
    /* numpy */
    {"numpy", "ndarray", NAME_INERT},
    {"numpy", "dtype", NAME_INERT},
    {"numpy.core.multiarray", "_reconstruct", NAME_INERT},
    {"numpy._core.multiarray", "_reconstruct", NAME_INERT},
    {"numpy.core.multiarray", "scalar", NAME_INERT},
    {"numpy._core.multiarray", "scalar", NAME_INERT},
    {"numpy.core.numeric", "_frombuffer", NAME_INERT},
    {"numpy._core.numeric", "_frombuffer", NAME_INERT},
    /* DeepSpeed */
    {"deepspeed.runtime.zero.config", "ZeroStageEnum", NAME_ENUM},
    {"deepspeed.runtime.fp16.loss_scaler", "LossScaler", NAME_INERT},
    {"deepspeed.runtime.fp16.loss_scaler", "DynamicLossScaler", NAME_INERT},
    {"deepspeed.utils.tensor_fragment", "fragment_address", NAME_INERT},
    {"deepspeed.runtime.bf16_optimizer", "fragment_address", NAME_INERT},
    {"deepspeed.checkpoint.universal_checkpoint", "SubparamShape", NAME_INERT},
    {"deepspeed.pt.loss_scaler", "LossScaler", NAME_INERT},
    {"deepspeed.pt.loss_scaler", "DynamicLossScaler", NAME_INERT},
    /* Megatron's arguments, in the client state of DeepSpeed files */
    {"megatron.enums", NULL, NAME_ENUM},
    {"megatron.model.enums", NULL, NAME_ENUM},
    {"megatron.core.enums", NULL, NAME_ENUM},
    {"megatron.core.transformer.enums", NULL, NAME_ENUM},
    /* transformers, accelerate, trl: training_args.bin */
    {"transformers.training_args", NULL, NAME_ENUM},
    {"transformers.training_args_seq2seq", NULL, NAME_INERT},
    {"transformers.trainer_utils", NULL, NAME_ENUM},
    {"transformers.trainer_pt_utils", "AcceleratorConfig", NAME_INERT},
    {"transformers.integrations.deepspeed", "HfTrainerDeepSpeedConfig", NAME_INERT},
    {"transformers.integrations.deepspeed", "HfDeepSpeedConfig", NAME_INERT},
    {"transformers.deepspeed", "HfTrainerDeepSpeedConfig", NAME_INERT},
    {"transformers.deepspeed", "HfDeepSpeedConfig", NAME_INERT},
    {"accelerate.state", "PartialState", NAME_INERT},
    {"accelerate.utils.dataclasses", NULL, NAME_ENUM},
    {"trl.trainer.sft_config", "SFTConfig", NAME_INERT},
    {"trl.trainer.dpo_config", "DPOConfig", NAME_INERT},
    {"trl.trainer.kto_config", "KTOConfig", NAME_INERT},
    {"trl.trainer.grpo_config", "GRPOConfig", NAME_INERT},
    {"trl.trainer.reward_config", "RewardConfig", NAME_INERT},
    /* torch's distributed checkpoints and sharded tensors */
    {"torch.distributed.checkpoint.metadata", NULL, NAME_INERT},
    {"torch.distributed.checkpoint.filesystem", "_StorageInfo", NAME_INERT},
    {"torch.distributed._shard.checkpoint.metadata", NULL, NAME_INERT},
    {"torch.distributed._shard.checkpoint.filesystem", "_StorageInfo", NAME_INERT},
    {"torch.distributed._shard.metadata", "ShardMetadata", NAME_INERT},
    {"torch.distributed._shard.sharded_tensor.metadata", NULL, NAME_INERT},
    {"torch.distributed._shard.sharded_tensor.shard", "Shard", NAME_INERT},
    {"torch.distributed._shard.sharded_tensor.api", "ShardedTensor", NAME_UNREAD},
    {"torch.distributed._shard.sharding_spec.chunk_sharding_spec", "ChunkShardingSpec",
     NAME_INERT},
    {"torch.distributed._shard.sharding_spec.api", "EnumerableShardingSpec", NAME_INERT},
    {"torch.distributed.remote_device", "_remote_device", NAME_INERT},
    {"torch.distributed.tensor", "DTensor", NAME_INERT},
    {"torch.distributed._tensor.api", "DTensor", NAME_INERT},
    {"torch.distributed.tensor.placement_types", NULL, NAME_INERT},
    {"torch.distributed._tensor.placement_types", NULL, NAME_INERT},
    {"torch.distributed.tensor._dtensor_spec", NULL, NAME_INERT},
    {"torch.distributed.device_mesh", "DeviceMesh", NAME_INERT},
    {"torch.distributed._mesh_layout", NULL, NAME_INERT},
    /* Lightning */
    {"lightning.fabric.utilities.data", "AttributeDict", NAME_INERT},
    {"lightning_fabric.utilities.data", "AttributeDict", NAME_INERT},
    {"pytorch_lightning.utilities.parsing", "AttributeDict", NAME_INERT},
    {"pytorch_lightning.callbacks.model_checkpoint", "ModelCheckpoint", NAME_INERT},
    {"omegaconf.dictconfig", "DictConfig", NAME_INERT},
    {"omegaconf.listconfig", "ListConfig", NAME_INERT},
    {"omegaconf.base", "ContainerMetadata", NAME_INERT},
    {"omegaconf.base", "Metadata", NAME_INERT},
    {"omegaconf.nodes", "AnyNode", NAME_INERT},
    {"typing", "Any", NAME_INERT},
};

/* The row of names that a rule knows. */
static const struct torch_name inert_row = {"torch", NULL, NAME_INERT};

/* Dtypes of torch known by name only, and storages of some of them. */
static bool is_odd_dtype(const char *name)
{
    static const char *const odd[] = {
        "bits1x8", "bits2x4", "bits4x2", "bits8", "bits16", "quint4x2", "quint2x4",
        "QUInt4x2Storage", "QUInt2x4Storage", "float4_e2m1fn_x2",
    };

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (strcmp(odd[i], name) == 0)
            return true;
    name += *name == 'u';               /* int1 to int7, and uint1 to uint7 */
    return strncmp(name, "int", 3) == 0 && name[3] >= '1' && name[3] <= '7' && !name[4];
}

/* Whether it is the name of a dtype: torch.float32, torch.FloatStorage and the like. */
static bool names_dtype(const char *module, const char *name)
{
    if (strcmp(module, "torch.storage") == 0)
        return strcmp(name, "UntypedStorage") == 0 || strcmp(name, "_UntypedStorage") == 0 ||
               strcmp(name, "TypedStorage") == 0;
    if (strcmp(module, "torch") != 0 && strcmp(module, "torch.cuda") != 0)
        return false;
    return strcmp(name, "UntypedStorage") == 0 || is_odd_dtype(name) ||
           ckpt_dtype_parse(name) != CKPT_DTYPE_NONE;
}

/*
 * Whether a module is in the package: classes of TorchScript, whose code stays in the archive,
 * and of torchao, whose tensors are known by their class.
 */
static bool is_below(const char *module, const char *package)
{
    size_t n = strlen(package);

    return strncmp(module, package, n) == 0 && (!module[n] || module[n] == '.');
}

/*
 * A row without a name covers the classes of a module: CamelCase, and no dot, which protocol 4
 * would follow to any module that the module imports.
 */
static bool is_class(const char *name)
{
    name += *name == '_';
    return *name >= 'A' && *name <= 'Z' && !strchr(name, '.');
}

/* Whether a name of TorchScript or torchao is plain, without access to anything else. */
static bool is_plain_below(const char *module, const char *name)
{
    return (is_below(module, "__torch__") || is_below(module, "torchao")) &&
           !strchr(name, '.') && !pickle_danger(module, name);
}

const struct torch_name *torch_name_find(const char *module, const char *name)
{
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        if ((rows[i].name ? rows[i].name[0] == name[0] && strcmp(rows[i].name, name) == 0
                          : is_class(name)) &&
            strcmp(rows[i].module, module) == 0)
            return &rows[i];
    return names_dtype(module, name) || is_plain_below(module, name) ? &inert_row : NULL;
}

bool torch_name_alarms(const char *module, const char *name)
{
    return pickle_danger(module, name) != NULL;
}
