/* pickle_danger, torch_names: which names are alarming, known, or neither. */
#include "tests/unit/unit.h"

#include "formats/container/pickle/danger.h"
#include "formats/torch/names.h"

/* Every fact of tests/golden/malicious/gadgets.txt. */
TEST(gadgets_of_other_scanners_are_dangerous)
{
    FILE *f = fopen("tests/golden/malicious/gadgets.txt", "r");
    char line[512], module[256], name[256];
    int n = 0;

    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (line[0] == '#' || sscanf(line, "%255s %255s", module, name) != 2)
            continue;
        if (!pickle_danger(module, name))
            fail_msg("%s %s: not dangerous", module, name);
        if (torch_name_find(module, name) && strcmp(name, "getattr") != 0)
            fail_msg("%s %s: in the table of known names", module, name);
        n++;
    }
    fclose(f);
    assert_true(n > 150);
}

TEST(names_of_checkpoints_are_known_and_not_alarming)
{
    static const char *const known[][2] = {
        {"torch._utils", "_rebuild_tensor_v2"}, {"collections", "OrderedDict"},
        {"numpy.core.multiarray", "_reconstruct"}, {"torch", "FloatStorage"},
        {"transformers.training_args", "TrainingArguments"},
        {"transformers.trainer_utils", "IntervalStrategy"},
        {"accelerate.utils.dataclasses", "DistributedType"},
        {"torch.distributed._mesh_layout", "_MeshLayout"},
        {"torch.jit._pickle", "build_intlist"}, {"__torch__.a.___torch_mangle_1", "Model"},
        {"torchao.quantization.quant_api", "_int8_symm_per_token_quant"},
    };

    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        if (!torch_name_find(known[i][0], known[i][1]))
            fail_msg("%s.%s: not known", known[i][0], known[i][1]);
}

/* Protocol 4 follows dots: a known module is a door to all that it imports. */
TEST(a_name_through_a_known_module_is_not_known)
{
    static const char *const through[][2] = {
        {"transformers.training_args", "os.system"}, {"transformers.training_args", "os"},
        {"transformers.trainer_utils", "TrainOutput.__init__.__globals__"},
        {"torchao.utils", "importlib.import_module"}, {"torchao.utils", "os"},
        {"torch.distributed.checkpoint.metadata", "os.system"},
        {"__torch__.a", "sys.modules"}, {"accelerate.utils.dataclasses", "os.system"},
        {"collections", "OrderedDict.__init__"},
    };

    for (size_t i = 0; i < sizeof through / sizeof through[0]; i++) {
        if (torch_name_find(through[i][0], through[i][1]))
            fail_msg("%s.%s: known", through[i][0], through[i][1]);
        if (!torch_name_alarms(through[i][0], through[i][1]))
            fail_msg("%s.%s: no alarm", through[i][0], through[i][1]);
    }
}

TEST(unknown_names_are_neither)
{
    static const char *const odd[][2] = {
        {"mymodel.nets", "Encoder"}, {"sklearn.linear_model._base", "LinearRegression"},
        {"fairseq.data.dictionary", "Dictionary"}, {"numpy.random._pickle", "__generator_ctor"},
        {"osmium", "Handler"}, {"system", "Thing"}, {"decimal", "Decimal"},
    };

    for (size_t i = 0; i < sizeof odd / sizeof odd[0]; i++)
        if (torch_name_find(odd[i][0], odd[i][1]) || pickle_danger(odd[i][0], odd[i][1]))
            fail_msg("%s.%s", odd[i][0], odd[i][1]);
    assert_true(pickle_name_is_plain("torch._utils"));
    assert_true(pickle_name_is_plain("a1.b_2"));
    assert_false(pickle_name_is_plain("1a"));
    assert_false(pickle_name_is_plain("a..b"));
    assert_false(pickle_name_is_plain("mport os"));
    assert_false(pickle_name_is_plain(""));
}
