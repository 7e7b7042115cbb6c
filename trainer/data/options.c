/* options - see options.h. */
#include "trainer/data/options.h"

#include <string.h>

#include "libckpt/log.h"

void data_settings_default(struct data_settings *s)
{
    *s = (struct data_settings){.max_seq_length = 512, .truncation_side = "right",
                                .add_eos_token = true, .assistant_only_loss = true};
}

struct data_opts data_settings_opts(const struct data_settings *s)
{
    return (struct data_opts){
        .prompt_template = s->prompt_template, .completion_template = s->completion_template,
        .field_mapping = s->field_mapping, .text_field = s->text_field,
        .messages_field = s->messages_field, .chat_template = s->chat_template,
        .mask_history = s->mask_history,
        .no_eos = !s->add_eos_token, .cut_left = strcmp(s->truncation_side, "left") == 0,
        .max_seq_length = s->max_seq_length, .loss_on_prompt = s->train_on_prompt,
        .chat_prompts = s->chat_prompts, .whole_chats = !s->assistant_only_loss,
        .bad = s->skip_bad_rows > 0 ? DATA_BAD_SKIP : DATA_BAD_STOP,
    };
}

int data_settings_pair(struct sample_pair *pair, const struct data_settings *s,
                       struct ckpt_err *err)
{
    if (s->max_target_length > 0 && !pair->wanted)
        return ckpt_fail(err, CKPT_ECONFIG, "`max_target_length` has no effect: the model has no "
                         "encoder, `max_seq_length` is the length of its samples");
    if (s->max_target_length > s->max_seq_length)
        return ckpt_fail(err, CKPT_ECONFIG, "`max_target_length %lld` is beyond `max_seq_length "
                         "%lld`, which bounds both parts", (long long)s->max_target_length,
                         (long long)s->max_seq_length);
    pair->max_target = s->max_target_length;
    return 0;
}

int data_settings_check_bad(const struct data_settings *s, struct data_source *source,
                            struct ckpt_err *err)
{
    struct data_stats stats;
    int rc;

    if (s->skip_bad_rows == 0)
        return 0;
    if ((rc = data_source_scan(source, &stats, err)) != 0)
        return rc;
    if (stats.n_skipped > s->skip_bad_rows)
        return ckpt_fail(err, CKPT_EFORMAT, "%lld bad rows, `skip_bad_rows` allows %lld: %s",
                         (long long)stats.n_skipped, (long long)s->skip_bad_rows,
                         stats.first_bad);
    if (stats.n_skipped)
        ckpt_log(CKPT_LOG_WARNING, "%lld bad rows skipped; the first: %s",
                 (long long)stats.n_skipped, stats.first_bad);
    return 0;
}
