/* oci_auth - see oci_auth.h. */
#include "libckpt/remote/oci/oci_auth.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "libckpt/base/ask.h"
#include "libckpt/base/base64.h"
#include "libckpt/base/json.h"
#include "libckpt/base/secret.h"
#include "libckpt/err.h"
#include "libckpt/log.h"
#include "libckpt/remote/cache/cache.h"

#define HELPER_SECONDS 60       /* for a helper that asks the user */
#define TOKEN_SECONDS  60       /* life of a token whose service does not say */
#define TOKEN_EARLY    10       /* it is renewed so many seconds before */
#define ANSWER_BYTES   65536
#define DOCKER_KEY     "https://index.docker.io/v1/"

/* -- the challenge ---------------------------------------------------------------------------- */

/* The value of name="value" or name=value among others separated by commas. */
static bool parameter(char *out, size_t size, const char *text, const char *name)
{
    size_t n = strlen(name), k;

    for (const char *at = text; *at;) {
        const char *value, *end;
        bool found;

        at += strspn(at, " \t,");
        k = strcspn(at, "=,");
        if (at[k] != '=') {
            at += k;
            continue;
        }
        found = k == n && strncasecmp(at, name, n) == 0;
        value = at + k + 1;
        if (*value == '"') {
            value++;
            end = strchr(value, '"');
            if (!end)
                return false;
        } else {
            end = value + strcspn(value, ", \t");
        }
        if (found)
            return (size_t)snprintf(out, size, "%.*s", (int)(end - value), value) < size;
        at = end + (*end == '"');
    }
    return false;
}

bool oci_challenge_read(struct oci_challenge *c, const char *text)
{
    memset(c, 0, sizeof *c);
    if (strncasecmp(text, "basic", 5) == 0 && (!text[5] || text[5] == ' '))
        return true;
    if (strncasecmp(text, "bearer ", 7) != 0)
        return false;
    c->bearer = true;
    if (!parameter(c->service, sizeof c->service, text + 7, "service"))
        c->service[0] = '\0';
    return parameter(c->realm, sizeof c->realm, text + 7, "realm") && c->realm[0];
}

/* -- name and password ------------------------------------------------------------------------ */

static bool keep_login(struct oci_auth *a, const char *user, const char *password)
{
    a->has_login = user && password && *user && *password && !strpbrk(user, ":\r\n") &&
                   !strpbrk(password, "\r\n") &&
                   (size_t)snprintf(a->user, sizeof a->user, "%s", user) < sizeof a->user &&
                   (size_t)snprintf(a->password, sizeof a->password, "%s", password) <
                       sizeof a->password;
    if (a->has_login)
        ckpt_secret_add(a->password);
    return a->has_login;
}

/* What docker-credential-NAME has for a key. */
static bool ask_helper(struct oci_auth *a, const char *name, const char *key)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    char program[160];
    const char *const argv[] = {program, "get", NULL};
    struct ckpt_err err = {0};
    struct ckpt_buf out;
    json_t *answer = NULL;

    if (!*name || strspn(name, letters) != strlen(name) ||
        (size_t)snprintf(program, sizeof program, "docker-credential-%s", name) >= sizeof program)
        return false;
    ckpt_buf_init(&out, ANSWER_BYTES);
    if (ckpt_ask(&out, argv, key, HELPER_SECONDS, true, &err))
        ckpt_log(CKPT_LOG_DEBUG, "%s: %s", program, err.text);
    else if (ckpt_json_parse(&answer, (char *)out.data, out.len, CKPT_JSON_STRICT, &err) == 0)
        keep_login(a, json_string_value(json_object_get(answer, "Username")),
                   json_string_value(json_object_get(answer, "Secret")));
    json_decref(answer);
    if (out.data)
        explicit_bzero(out.data, out.len);
    ckpt_buf_release(&out);
    return a->has_login;
}

/* An entry of auths: auth is the base64 of user:password. */
static bool use_entry(struct oci_auth *a, const json_t *entry)
{
    const char *auth = json_string_value(json_object_get(entry, "auth"));
    char text[3500];
    char *colon;
    size_t n = 0;

    if (!auth || !*auth)
        return keep_login(a, json_string_value(json_object_get(entry, "username")),
                          json_string_value(json_object_get(entry, "password")));
    if (strlen(auth) / 4 * 3 >= sizeof text ||
        !base64_decode((unsigned char *)text, &n, auth, strlen(auth)))
        return false;
    text[n] = '\0';
    colon = strchr(text, ':');
    if (colon)
        *colon = '\0';
    keep_login(a, text, colon ? colon + 1 : NULL);
    explicit_bzero(text, sizeof text);
    return a->has_login;
}

static bool use_config(struct oci_auth *a, const json_t *config)
{
    const json_t *helpers = json_object_get(config, "credHelpers");
    const json_t *auths = json_object_get(config, "auths");
    const char *store = json_string_value(json_object_get(config, "credsStore"));
    bool docker = strcmp(a->host, "docker.io") == 0;
    const char *key = docker ? DOCKER_KEY : a->host;
    const char *helper = json_string_value(json_object_get(helpers, key));
    char with[330];

    if (helper)
        return ask_helper(a, helper, key);
    snprintf(with, sizeof with, "https://%s", a->host);
    if (use_entry(a, json_object_get(auths, key)) ||
        use_entry(a, json_object_get(auths, a->host)) ||
        use_entry(a, json_object_get(auths, with)))
        return true;
    return store && ask_helper(a, store, key);
}

static bool use_file(struct oci_auth *a, const char *path)
{
    struct ckpt_err err = {0};
    struct ckpt_file *file;
    json_t *config = NULL;
    bool found = false;

    if (ckpt_file_open(&file, path, CKPT_FOLLOW, &err))
        return false;
    if (ckpt_json_read(&config, file, 1 << 20, CKPT_JSON_STRICT, &err))
        ckpt_log(CKPT_LOG_WARNING, "%s: no credentials are read: %s", path, err.text);
    else
        found = use_config(a, config);
    json_decref(config);
    ckpt_file_close(file);
    return found;
}

static void find_login(struct oci_auth *a)
{
    const char *named = getenv("REGISTRY_AUTH_FILE"), *run = getenv("XDG_RUNTIME_DIR");
    char path[4096];

    if (a->looked)
        return;
    a->looked = true;
    if (named && *named && use_file(a, named))
        return;
    if (cache_place(path, sizeof path, "DOCKER_CONFIG", "/config.json", "/.docker/config.json") &&
        use_file(a, path))
        return;
    if (run && *run && (size_t)snprintf(path, sizeof path, "%s/containers/auth.json", run) <
                           sizeof path)
        use_file(a, path);
}

/* -- tokens ----------------------------------------------------------------------------------- */

static int basic_line(char *lines, size_t size, const struct oci_auth *a, struct ckpt_err *err)
{
    char text[sizeof a->user + sizeof a->password];
    int n = snprintf(text, sizeof text, "%s:%s", a->user, a->password);
    char *code = base64_encode((unsigned char *)text, (size_t)n);
    int rc = code ? 0 : ckpt_nomem(err, (size_t)n);

    if (rc == 0) {
        ckpt_secret_add(code);
        if ((size_t)snprintf(lines, size, "Authorization: Basic %s\n", code) >= size)
            rc = ckpt_fail(err, CKPT_ECONFIG, "%s: the password is too long", a->host);
        explicit_bzero(code, strlen(code));
    }
    explicit_bzero(text, sizeof text);
    ckpt_free(code);
    return rc;
}

static int sign_basic(void *ctx, const struct http_signed *what, char *lines, size_t size,
                      struct ckpt_err *err)
{
    (void)what;
    return basic_line(lines, size, ctx, err);
}

/* A token service on another host is not asked over http. */
static int check_realm(const struct oci_auth *a, char origin[512], struct ckpt_err *err)
{
    const char *realm = a->challenge.realm;
    bool plain = strncmp(a->http.origin, "http:", 5) == 0;

    if (http_origin(origin, realm, err))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: its token service is no address", a->host);
    if (strncmp(origin, "https:", 6) != 0 && !(plain && http_is_loopback(origin)))
        return ckpt_fail(err, CKPT_EREFUSED, "%s: its token service is asked over http, which "
                         "authenticates nobody", a->host);
    return 0;
}

static int token_address(char url[HTTP_URL], const struct oci_auth *a, struct ckpt_err *err)
{
    const char *realm = a->challenge.realm;
    char service[3 * sizeof a->challenge.service], scope[3 * sizeof a->scope];

    return http_escape(service, sizeof service, a->challenge.service, "") &&
                   http_escape(scope, sizeof scope, a->scope, "") &&
                   (size_t)snprintf(url, HTTP_URL, "%s%sservice=%s&scope=%s", realm,
                                    strchr(realm, '?') ? "&" : "?", service, scope) < HTTP_URL
               ? 0 : ckpt_fail(err, CKPT_ELIMIT, "%s: the address is too long", a->host);
}

static int take_token(struct oci_auth *a, const json_t *answer, time_t asked, struct ckpt_err *err)
{
    const char *token = json_string_value(json_object_get(answer, "token"));
    const json_t *life = json_object_get(answer, "expires_in");
    json_int_t seconds = json_is_integer(life) ? json_integer_value(life) : TOKEN_SECONDS;

    if (!token)
        token = json_string_value(json_object_get(answer, "access_token"));
    if (!token || !*token || strlen(token) >= sizeof a->token || strpbrk(token, " \r\n"))
        return ckpt_fail(err, CKPT_EPROTOCOL, "%s: its token service sent no token that can be "
                         "used", a->host);
    ckpt_secret_add(token);
    snprintf(a->token, sizeof a->token, "%s", token);
    a->until = asked + (time_t)(seconds < 0 ? 0 : seconds > 86400 ? 86400 : seconds);
    return 0;
}

/* The lock is held. */
static int get_token(struct oci_auth *a, struct ckpt_err *err)
{
    struct http *http = http_shared(err);
    struct http_auth login = {.sign = sign_basic, .ctx = a};
    char *url = ckpt_alloc(1, HTTP_URL);
    time_t asked = time(NULL);
    struct http_answer answer = {0};
    json_t *json = NULL;
    int rc = !http ? ckpt_err_code(err) : url ? 0 : ckpt_nomem(err, HTTP_URL);

    rc = rc ? rc : check_realm(a, login.origin, err);
    rc = rc ? rc : token_address(url, a, err);
    rc = rc ? rc : http_json(http, &json, &(struct http_request){
        .url = url, .name = a->host, .auth = a->has_login ? &login : NULL,
        .limit = ANSWER_BYTES}, &answer, err);
    if (rc && (answer.status == 401 || answer.status == 403)) {
        ckpt_fail(err, CKPT_EREFUSED, "%s: its token service refuses %s", a->host,
                  a->has_login ? "the name or password" : "to answer without a name");
        ckpt_err_hint(err, "docker login or skopeo login stores them");
    }
    rc = rc ? rc : take_token(a, json, asked, err);
    json_decref(json);
    ckpt_free(url);
    return rc;
}

/* -- requests --------------------------------------------------------------------------------- */

static int sign(void *ctx, const struct http_signed *what, char *lines, size_t size,
                struct ckpt_err *err)
{
    struct oci_auth *a = ctx;
    int rc = 0;

    (void)what;
    pthread_mutex_lock(&a->lock);
    if (a->challenge.bearer && a->token[0] && time(NULL) + TOKEN_EARLY >= a->until)
        rc = get_token(a, err);
    if (rc == 0 && a->token[0]) {
        if ((size_t)snprintf(lines, size, "Authorization: Bearer %s\n", a->token) >= size)
            rc = ckpt_fail(err, CKPT_EPROTOCOL, "%s: the token is too long", a->host);
    } else if (rc == 0 && a->has_login && !a->challenge.bearer) {
        rc = basic_line(lines, size, a, err);
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}

int oci_auth_open(struct oci_auth *a, const char *origin, const char *host, const char *scope,
                  struct ckpt_err *err)
{
    memset(a, 0, sizeof *a);
    pthread_mutex_init(&a->lock, NULL);
    snprintf(a->host, sizeof a->host, "%s", host);
    snprintf(a->scope, sizeof a->scope, "%s", scope);
    a->http = (struct http_auth){.sign = sign, .ctx = a};
    return http_origin(a->http.origin, origin, err);
}

void oci_auth_close(struct oci_auth *a)
{
    pthread_mutex_destroy(&a->lock);
    explicit_bzero(a, sizeof *a);
}

int oci_auth_answer(struct oci_auth *a, const char *challenge, struct ckpt_err *err)
{
    struct oci_challenge c;
    int rc = 0;

    if (!oci_challenge_read(&c, challenge))
        return ckpt_fail(err, CKPT_EUNSUPPORTED, "%s: wants credentials that are neither Basic nor "
                         "Bearer", a->host);
    pthread_mutex_lock(&a->lock);
    find_login(a);
    a->challenge = c;
    if (c.bearer) {
        rc = get_token(a, err);
    } else if (!a->has_login) {
        ckpt_fail(err, CKPT_EREFUSED, "%s: wants a name and password", a->host);
        rc = ckpt_err_hint(err, "docker login or skopeo login stores them");
    }
    pthread_mutex_unlock(&a->lock);
    return rc;
}
