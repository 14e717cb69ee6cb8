#include "completion.h"

#include <ctype.h>
#include <string.h>

/* Names of groups, as the page of `groups` shows them. */
#define LOG_LEVELS  "error warning notice info debug"
#define LIST_GROUPS "tuttictl groups 2>/dev/null | sed -n 's/^[^ ]*  *\\([^ ]*\\)  epoch.*/\\1/p' | sort -u"
/* Ranks of a group; as JSON, in which no name can look like one. */
#define LIST_RANKS "sed -n 's/^ *\"rank\": \\([0-9]*\\),*$/\\1/p' | sort -un"

static bool is_word_end(char c) {
        return c == '\0' || strchr(" ]|", c) != NULL;
}

/* "[--last N]", "[--json | --svg]", "-n N", "[--prefix auto|all|none]", "[--]". A value follows its option
 * after one blank. */
bool usage_next_option(const char **cursor, struct usage_option *ret) {
        for (const char *c = *cursor; *c; c++) {
                size_t n = 0, n_values;

                if (*c != '-' || (c > *cursor && !strchr(" [", c[-1])))
                        continue;
                while (!is_word_end(c[n]))
                        n++;
                *cursor = c + n;
                if (strspn(c, "-") == n) /* "--" is no option */
                        continue;
                snprintf(ret->name, sizeof(ret->name), "%.*s", (int)n, c);
                c += n;
                n_values = *c == ' ' && isalnum((unsigned char)c[1]) ? strcspn(c + 1, " ]") : 0;
                snprintf(ret->values, sizeof(ret->values), "%.*s", (int)n_values, c + 1);
                return true;
        }
        return false;
}

static const char *options_of(const struct command *c) {
        return c->options ? c->options : c->usage;
}

static bool has_choice(const struct usage_option *o) {
        return strchr(o->values, '|') != NULL;
}

static bool is_file(const struct usage_option *o) {
        return strcmp(o->values, "PATH") == 0 || strcmp(o->values, "FILE") == 0;
}

static void put_choice(const struct usage_option *o, FILE *out) {
        for (const char *c = o->values; *c; c++)
                fputc(*c == '|' ? ' ' : *c, out);
}

/* --- bash --- */

static void put_names(const struct command *const *commands, size_t n, FILE *out) {
        for (size_t i = 0; i < n; i++)
                fprintf(out, "%s%s", i ? " " : "", commands[i]->name);
}

/* The same option of an earlier command? */
static bool is_repeated(const struct command *const *commands, size_t i, const char *name) {
        struct usage_option o;

        while (i-- > 0)
                for (const char *cursor = options_of(commands[i]); usage_next_option(&cursor, &o);)
                        if (strcmp(o.name, name) == 0)
                                return true;
        return false;
}

/* What follows an option, of whichever command: the same name means the same everywhere. */
static void put_bash_values(const struct command *const *commands, size_t n, FILE *out) {
        struct usage_option o;

        fputs("        case $previous in\n", out);
        for (size_t i = 0; i < n; i++)
                for (const char *cursor = options_of(commands[i]); usage_next_option(&cursor, &o);) {
                        if (!*o.values || is_repeated(commands, i, o.name))
                                continue;
                        fprintf(out, "        %s) ", o.name);
                        if (is_file(&o))
                                fputs("mapfile -t COMPREPLY < <(compgen -f -- \"$current\") && ", out);
                        if (has_choice(&o)) {
                                fputs("mapfile -t COMPREPLY < <(compgen -W \"", out);
                                put_choice(&o, out);
                                fputs("\" -- \"$current\") && ", out);
                        }
                        fputs("return ;;\n", out);
                }
        fputs("        esac\n", out);
}

static void put_bash_command(const struct command *c, FILE *out) {
        struct usage_option o;

        fprintf(out, "        %s) words=\"--help", c->name);
        for (const char *cursor = options_of(c); usage_next_option(&cursor, &o);)
                fprintf(out, " %s", o.name);
        fprintf(out, "\" operand=%s ;;\n",
                c->operand == CTL_OPERAND_WORD   ? "level"
                : c->second                      ? "member"
                : c->operand != CTL_OPERAND_NONE ? "group"
                : strcmp(c->name, "run") == 0    ? "program"
                : strstr(c->usage, "[COMMAND]")  ? "command"
                : strstr(c->usage, "bash | zsh") ? "shell"
                                                 : "none");
}

static void write_bash(const struct command *const *commands, size_t n, FILE *out) {
        fputs("# bash completion of tuttictl, written by `tuttictl completion bash`\n"
              "_tuttictl_groups() {\n"
              "        local name\n"
              "        while read -r name; do\n"
              "                # A name is anybody's who works as this user: it must not reach the shell as "
              "code.\n"
              "                if [[ $name == \"$1\"* ]]; then\n"
              "                        COMPREPLY+=(\"$(printf %q \"$name\")\")\n"
              "                fi\n"
              "        done < <(" LIST_GROUPS ")\n"
              "}\n"
              "_tuttictl() {\n"
              "        local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD - 1]}\n"
              "        local words=\"\" operand=none all=\"",
                out);
        put_names(commands, n, out);
        fputs("\"\n"
              "        COMPREPLY=()\n"
              "        if [ \"$COMP_CWORD\" = 1 ]; then\n"
              "                mapfile -t COMPREPLY < <(compgen -W \"$all --help --version\" -- "
              "\"$current\")\n"
              "                return\n"
              "        fi\n",
                out);
        put_bash_values(commands, n, out);
        fputs("        case ${COMP_WORDS[1]} in\n", out);
        for (size_t i = 0; i < n; i++)
                put_bash_command(commands[i], out);
        fputs("        esac\n"
              "        case $current in\n"
              "        -*) operand=none ;;\n"
              "        esac\n"
              "        case $operand in\n"
              "        command) words=\"$words $all\" ;;\n"
              "        shell) words=\"$words bash zsh\" ;;\n"
              "        level) words=\"$words " LOG_LEVELS "\" ;;\n"
              "        program) mapfile -t COMPREPLY < <(compgen -c -f -- \"$current\") ;;\n"
              "        group) _tuttictl_groups \"$current\" ;;\n"
              "        member)\n"
              "                if [[ $previous == */* && $previous != -* ]]; then\n"
              "                        words=\"$(tuttictl replicas --json -- \"$previous\" 2>/dev/null "
              "| " LIST_RANKS ")\"\n"
              "                else\n"
              "                        _tuttictl_groups \"$current\"\n"
              "                fi\n"
              "                ;;\n"
              "        esac\n"
              "        mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
              "}\n"
              "complete -F _tuttictl tuttictl\n",
                out);
}

/* --- zsh --- */

/* Inside single quotes, where a colon divides. */
static void put_quoted(const char *s, FILE *out) {
        for (; *s; s++)
                if (*s == '\'')
                        fputs("'\\''", out);
                else if (*s == ':')
                        fputs("\\:", out);
                else
                        fputc(*s, out);
}

static void put_zsh_option(const struct usage_option *o, FILE *out) {
        fprintf(out, " '%s", o->name);
        if (has_choice(o)) {
                fputs(":value:(", out);
                put_choice(o, out);
                fputc(')', out);
        } else if (*o->values) {
                fprintf(out, ":%s:%s", o->values, is_file(o) ? "_files" : "");
        }
        fputc('\'', out);
}

static void put_zsh_command(const struct command *c, FILE *out) {
        struct usage_option o;

        fprintf(out, "        %s) _arguments '--help'", c->name);
        for (const char *cursor = options_of(c); usage_next_option(&cursor, &o);)
                put_zsh_option(&o, out);
        if (c->operand == CTL_OPERAND_WORD)
                fputs(" ':level:(" LOG_LEVELS ")'", out);
        else if (c->second)
                fprintf(out, " ':group:_tuttictl_groups' ':%s:_tuttictl_ranks'", c->second);
        else if (c->operand != CTL_OPERAND_NONE)
                fputs(" ':group:_tuttictl_groups'", out);
        else if (strcmp(c->name, "run") == 0)
                fputs(" '*::program:_normal'", out);
        else if (strstr(c->usage, "[COMMAND]"))
                fputs(" ':command:_tuttictl_commands'", out);
        else if (strstr(c->usage, "bash | zsh"))
                fputs(" ':shell:(bash zsh)'", out);
        fputs(" ;;\n", out);
}

static void write_zsh(const struct command *const *commands, size_t n, FILE *out) {
        fputs("#compdef tuttictl\n"
              "# zsh completion of tuttictl, written by `tuttictl completion zsh`\n"
              "_tuttictl_groups() {\n"
              "        local -a groups\n"
              "        groups=(${(f)\"$(" LIST_GROUPS ")\"})\n"
              "        compadd -a groups\n"
              "}\n"
              "_tuttictl_ranks() {\n"
              "        local -a ranks\n"
              "        ranks=(${(f)\"$(tuttictl replicas --json -- $words[CURRENT-1] 2>/dev/null "
              "| " LIST_RANKS ")\"})\n"
              "        compadd -a ranks\n"
              "}\n"
              "_tuttictl_commands() {\n"
              "        local -a commands\n"
              "        commands=(\n",
                out);
        for (size_t i = 0; i < n; i++) {
                fprintf(out, "                '%s:", commands[i]->name);
                put_quoted(commands[i]->summary, out);
                fputs("'\n", out);
        }
        fputs("        )\n"
              "        _describe command commands\n"
              "}\n"
              "_tuttictl() {\n"
              "        if ((CURRENT == 2)); then\n"
              "                _tuttictl_commands\n"
              "                return\n"
              "        fi\n"
              "        shift words\n"
              "        ((CURRENT--))\n"
              "        case $words[1] in\n",
                out);
        for (size_t i = 0; i < n; i++)
                put_zsh_command(commands[i], out);
        fputs("        esac\n"
              "}\n"
              "_tuttictl \"$@\"\n",
                out);
}

void completion_write(const struct command *const *commands, size_t n, enum shell shell, FILE *out) {
        switch (shell) {
        case SHELL_BASH: write_bash(commands, n, out); break;
        case SHELL_ZSH: write_zsh(commands, n, out); break;
        }
}
