/* judge - see judge.h. */
#include "tools/push/judge.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "formats/torch/torch.h"
#include "libckpt/err.h"

#define MAX_VALUES 100000       /* TrainingArguments has some two hundred */
#define TOKEN_LETTERS 20        /* after "hf_": a token has 34 */

/* Whether text contains "hf_" followed by letters and digits. */
static bool has_token(const char *text)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

    for (; (text = strstr(text, "hf_")) != NULL; text += 3)
        if (strspn(text + 3, letters) >= TOKEN_LETTERS)
            return true;
    return false;
}

/* Whether a key has a text as value, as in "hub_token": "...". */
static bool has_value(const json_t *v, const char *key, int depth)
{
    const char *name;
    json_t *part;
    size_t i;

    if (depth > 32)
        return true;
    json_array_foreach (v, i, part)
        if (has_value(part, key, depth + 1))
            return true;
    json_object_foreach ((json_t *)v, name, part)
        if ((strcmp(name, key) == 0 && json_is_string(part)) || has_value(part, key, depth + 1))
            return true;
    return false;
}

bool judge_settings(char *why, size_t size, struct ckpt_file *file)
{
    static const char *const keys[] = {"hub_token", "push_to_hub_token"};
    struct torch_archive *a = NULL;
    struct ckpt_err err = {0};
    json_t *json = NULL;
    char *text = NULL;
    bool good = false;

    if (torch_archive_open(&a, file, &err)) {
        snprintf(why, size, err.code == CKPT_EREFUSED ? "loading it runs what is not known"
                                                      : "it is no file of torch");
        return false;
    }
    json = value_to_json(torch_archive_root(a), MAX_VALUES);
    text = json ? json_dumps(json, JSON_ENCODE_ANY) : NULL;
    if (!text || torch_archive_values(a) > MAX_VALUES)
        snprintf(why, size, "it is too large to look through");
    else if (has_token(text) || has_value(json, keys[0], 0) || has_value(json, keys[1], 0))
        snprintf(why, size, "a token is in it");
    else
        good = true;
    free(text);
    json_decref(json);
    torch_archive_close(a);
    return good;
}
