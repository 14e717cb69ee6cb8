/* Reading tuttid.conf.
 *
 * inih splits the file into section, name, value. It does not tell the line, joins indented lines to the one
 * before, and cuts lines at 200 bytes without a word; read_line, which feeds it, makes up for all three. Of a
 * comment inih sees nothing; of a line that is too long for it, the key, and the handler takes the value from
 * here. */
#include <errno.h>
#include <ini.h>
#include <stdio.h>
#include <string.h>

#include "base/cleanup.h"
#include "base/text.h"
#include "config-internal.h"

/* Without the comment, and as the error says. The longest value that is allowed fits. */
#define MAX_LINE_BYTES  4096
#define PROBLEM_BYTES   768
#define BLANKS          " \t\v\f\r"
#define BYTE_ORDER_MARK "\xef\xbb\xbf"
#define NO_SETTING      "neither [section] nor key = value; comments begin with # or ;."

/* Where a key of one user's limits was given. */
struct sighting {
        uint32_t uid;
        const struct config_key *key;
        int line;
};

#define MAX_SIGHTINGS (MAX_OVERRIDES * sizeof(struct quota_limits) / sizeof(uint64_t))

struct reading {
        FILE *file;
        struct config config;
        const char *path;
        struct text why;
        char text[MAX_LINE_BYTES + 1]; /* the line that inih is looking at */
        const char *long_value;        /* in `text`, where inih has only the key of it; or NULL */
        int line;                      /* its number */
        int error_line;                /* of what `why` says; 0: nothing yet */
        int seen_on[MAX_CONFIG_KEYS];
        struct sighting of_users[MAX_SIGHTINGS];
        size_t n_of_users;
};

/* The first error is the one to tell. */
static void blame_line(struct reading *r, const char *problem) {
        if (r->error_line)
                return;
        r->error_line = r->line;
        text_add(&r->why, "%s:%d: %s", r->path, r->line, problem);
}

/* --- lines --- */

struct line {
        char *text; /* without indentation and comment */
        bool is_cut, has_zero;
};

static bool is_in(char c, const char *set) {
        return c != '\0' && strchr(set, c);
}

static bool is_comment(const char *line) {
        return is_in(line[0], "#;");
}

/* Behind a setting it is a ";" with a blank before it, as inih has it. true: there was one. */
static bool cut_comment(char *line) {
        char *c = line;
        while (*c && !(*c == ';' && c > line && is_in(c[-1], BLANKS)))
                c++;
        bool is_there = *c == ';';
        *c = '\0';
        return is_there;
}

/* Reads the next line, as much of it as there is room for. false: there is none. */
static bool take_line(struct reading *r, struct line *ret) {
        size_t n = 0;
        int c;
        *ret = (struct line){ .text = r->text };
        while ((c = fgetc(r->file)) != EOF && c != '\n') {
                ret->has_zero |= c == '\0';
                if (n < MAX_LINE_BYTES)
                        r->text[n] = (char)c;
                n++;
        }
        ret->is_cut = n > MAX_LINE_BYTES;
        r->text[ret->is_cut ? MAX_LINE_BYTES : n] = '\0';
        r->line++;
        if (r->line == 1 && strncmp(r->text, BYTE_ORDER_MARK, strlen(BYTE_ORDER_MARK)) == 0)
                ret->text += strlen(BYTE_ORDER_MARK);
        ret->text += strspn(ret->text, BLANKS);
        if (is_comment(ret->text) || cut_comment(ret->text))
                ret->is_cut = false;
        return n > 0 || c == '\n';
}

static void cut_blanks(char *line) {
        size_t n = strlen(line);
        while (n > 0 && is_in(line[n - 1], BLANKS))
                line[--n] = '\0';
}

/* Gives inih "key =", and keeps the value for its handler. false: it is no setting, or its key does not fit.
 */
static bool hold_value(struct reading *r, char *line, char *buf, size_t size) {
        size_t n = strcspn(line, "=:");
        if (line[0] == '[' || line[n] == '\0' || n + sizeof("=\n") > size)
                return false;
        snprintf(buf, size, "%.*s=\n", (int)n, line);
        cut_blanks(line);
        r->long_value = line + n + 1 + strspn(line + n + 1, BLANKS);
        return true;
}

/* ini_reader: fgets that counts, and leaves nothing that inih would cut, join or take for two lines. */
static char *read_line(char *buf, int size, void *stream) {
        struct reading *r = stream;
        struct line line;
        r->long_value = NULL;
        if (!take_line(r, &line))
                return NULL;
        snprintf(buf, (size_t)size, "\n");
        if (line.has_zero)
                blame_line(r, "a byte of this line is zero; it is no text.");
        else if (line.is_cut)
                blame_line(r, "the line is too long; use at most 4096 bytes.");
        else if (is_comment(line.text))
                return buf;
        else if (strlen(line.text) + sizeof("\n") <= (size_t)size)
                snprintf(buf, (size_t)size, "%s\n", line.text);
        else if (!hold_value(r, line.text, buf, (size_t)size))
                blame_line(r, NO_SETTING);
        return buf;
}

/* --- settings --- */

static void blame_repetition(struct reading *r, const char *key, const char *value, int line) {
        char problem[PROBLEM_BYTES];
        snprintf(problem, sizeof(problem), "%s = %.120s: given before, on line %d; remove one.", key, value,
                line);
        blame_line(r, problem);
}

/* The line on which it was given before; 0: it was not. */
static int seen_of_user(const struct reading *r, const struct config_key *k, uint32_t uid) {
        for (size_t i = 0; i < r->n_of_users; i++)
                if (r->of_users[i].uid == uid && r->of_users[i].key == k)
                        return r->of_users[i].line;
        return 0;
}

/* ini_handler: 1 to go on, 0 for an error. */
static int take_pair(void *user, const char *section, const char *name, const char *inih_value) {
        struct reading *r = user;
        char key[128], problem[PROBLEM_BYTES];
        const char *value = r->long_value ? r->long_value : inih_value;
        snprintf(key, sizeof(key), "%s%s%s", section, *section ? "." : "", name);
        uint32_t uid = 0;
        const struct config_key *plain = config_find_key(key), *of_user = config_find_override_key(key, &uid);
        int *seen_on = plain ? &r->seen_on[config_key_index(plain)] : NULL;
        int before = of_user ? seen_of_user(r, of_user, uid) : seen_on ? *seen_on : 0;
        if (before) {
                blame_repetition(r, key, value, before);
                return 0;
        }
        if (config_set(&r->config, key, value, problem, sizeof(problem)) < 0) {
                blame_line(r, problem);
                return 0;
        }
        if (seen_on)
                *seen_on = r->line;
        else /* there is room for every key of every user that config_set takes */
                r->of_users[r->n_of_users++] = (struct sighting){ uid, of_user, r->line };
        return 1;
}

/* --- the file --- */

static void close_file(FILE **f) {
        if (*f)
                fclose(*f);
}

int config_read(struct config *c, const char *path, char *why, size_t why_bytes) {
        CLEANUP(close_file) FILE *f = fopen(path, "re");
        if (!f) {
                int r = -errno;
                snprintf(why, why_bytes, "%s: cannot be read: %s", path, strerror(-r));
                return r;
        }
        struct reading reading = { .file = f, .config = *c, .path = path };
        text_init(&reading.why, why, why_bytes);
        int line = ini_parse_stream(read_line, &reading, take_pair, &reading);
        if (ferror(f)) {
                snprintf(why, why_bytes, "%s: cannot be read: %s", path, strerror(EIO));
                return -EIO;
        }
        if (line > 0 && (!reading.error_line || line < reading.error_line))
                snprintf(why, why_bytes, "%s:%d: %s", path, line, NO_SETTING);
        if (line != 0 || reading.error_line)
                return -EINVAL;
        *c = reading.config;
        return 0;
}
