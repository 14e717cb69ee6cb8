/* Keys as variables of the environment: quota.mapped-bytes is TUTTID_QUOTA_MAPPED_BYTES.
 *
 * Not every name that begins so is meant for tuttid: Kubernetes makes TUTTID_PORT and more of a service that
 * somebody calls tuttid. So a variable that is no key is an error where it names a section, or nearly a key;
 * others are somebody else's. */
#include <errno.h>
#include <string.h>
#include "base/text.h"
#include "config-internal.h"

#define PREFIX       "TUTTID_"
#define MAX_VARIABLE (sizeof(PREFIX) + MAX_KEY_TEXT)
#define NEARLY       4 /* less than so many changed letters */

static char upper(char c) {
        return c == '.' || c == '-' ? '_' : c >= 'a' && c <= 'z' ? (char)(c - 'a' + 'A') : c;
}

static char lower(char c) {
        return c == '_' ? '-' : c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

void config_name_variable(const char *key, char *ret, size_t size) {
        struct text t;
        text_init(&t, ret, size);
        text_add(&t, PREFIX);
        for (; *key; key++)
                text_add(&t, "%c", upper(*key));
}

static const struct config_key *find_variable(const char *name) {
        const struct config_key *k;
        char variable[MAX_VARIABLE];
        for (size_t i = 0; (k = config_key_at(i)); i++) {
                config_name_variable(k->name, variable, sizeof(variable));
                if (strcmp(variable, name) == 0)
                        return k;
        }
        return NULL;
}

/* Turns "QUOTA_GROUP" into "quota.group", or into "qouta-group" where it begins with no section. true: it
 * does. */
static bool make_key(const char *rest, char *key, size_t size) {
        const struct config_key *k;
        size_t n = 0;
        for (; rest[n] && n + 1 < size; n++)
                key[n] = lower(rest[n]);
        key[n] = '\0';
        for (size_t i = 0; (k = config_key_at(i)); i++) {
                size_t section = strcspn(k->name, ".");
                if (strncmp(key, k->name, section) != 0 || (key[section] != '-' && key[section] != '\0'))
                        continue;
                if (key[section])
                        key[section] = '.';
                return true;
        }
        return false;
}

/* A limit of one user: which one, cannot be said so. */
static bool is_of_user(const char *key) {
        static const char section[] = "quota.";
        return strncmp(key, section, strlen(section)) == 0 && key[strlen(section)] >= '0' &&
               key[strlen(section)] <= '9';
}

static bool ends_with(const char *name, const char *end) {
        size_t n = strlen(name), n_end = strlen(end);
        return n >= n_end && strcmp(name + n - n_end, end) == 0;
}

/* What Kubernetes makes of a service, whose name may go on with one of our sections ("tuttid-gpu"). */
static bool is_of_service(const char *name) {
        const char *port = strstr(name, "_PORT_");
        return ends_with(name, "_SERVICE_HOST") || ends_with(name, "_PORT") ||
               strstr(name, "_SERVICE_PORT_") ||
               (port && port[strlen("_PORT_")] >= '0' && port[strlen("_PORT_")] <= '9');
}

/* What is no key. 0: it is not meant for us. */
static int blame_variable(const char *name, const char *value, struct text *why) {
        const struct config_key *near[MAX_NEAR_KEYS];
        char key[MAX_KEY_TEXT];
        bool has_section = make_key(name + strlen(PREFIX), key, sizeof(key));
        size_t n = config_near_keys(key, has_section ? CONFIG_FAR : NEARLY, near);
        if ((!has_section && n == 0) || is_of_service(name))
                return 0;
        config_print_setting(name, value, why);
        if (is_of_user(key)) {
                text_add(why, "limits of one user stand in the file, or behind --set.");
                return -EINVAL;
        }
        text_add(why, "unknown variable; ");
        for (size_t i = 0; i < n; i++) {
                char variable[MAX_VARIABLE];
                config_name_variable(near[i]->name, variable, sizeof(variable));
                text_add(why, "%s%s", i ? " or " : "did you mean ", variable);
        }
        text_add(why, n ? "?" : "tuttid --help lists all keys.");
        return -EINVAL;
}

/* 1 when it was a key, 0 when it is somebody else's. */
static int take_variable(struct config *c, const char *entry, struct text *why) {
        char name[MAX_VARIABLE + MAX_KEY_TEXT];
        const char *equals = strchr(entry, '=');
        if (strncmp(entry, PREFIX, strlen(PREFIX)) != 0 || !equals ||
                (size_t)(equals - entry) >= sizeof(name))
                return 0;
        memcpy(name, entry, (size_t)(equals - entry));
        name[equals - entry] = '\0';
        const struct config_key *k = find_variable(name);
        if (!k)
                return blame_variable(name, equals + 1, why);
        config_print_setting(name, equals + 1, why);
        int r = config_set_key(c, k, equals + 1, why);
        if (r < 0)
                return r;
        return 1;
}

int config_take_environment(struct config *c, const char *const *environment, char *why, size_t why_bytes) {
        struct config trial = *c;
        int n = 0;
        for (; *environment; environment++) {
                struct text t;
                text_init(&t, why, why_bytes);
                int r = take_variable(&trial, *environment, &t);
                if (r < 0)
                        return r;
                n += r;
        }
        why[0] = '\0';
        *c = trial;
        return n;
}
