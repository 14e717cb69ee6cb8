/* Completion, as the shells do it: every command and every option that its help names, and no others. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include "host.h"
#include "program.h"
#include "replica.h"
#include "unit.h"

static const char *const commands[] = { "run", "status", "top", "groups", "replicas", "buffers", "health",
        "stats", "dump", "trace", "doctor", "quota", "plan", "diag", "drain", "kick", "log-level", "ready",
        "completion", "version", "help" };

#define N_COMMANDS (sizeof(commands) / sizeof(*commands))

/* What bash offers for "tuttictl WORDS", the last of which is being typed; one a line. */
static void complete(const char *words, int n_words, struct program *p) {
        char line[1024];

        snprintf(line, sizeof(line),
                "tuttictl() { %s \"$@\"; }; source <(tuttictl completion bash); COMP_WORDS=(tuttictl %s); "
                "COMP_CWORD=%d; _tuttictl; printf '%%s\\n' \"${COMPREPLY[@]}\"",
                program_tuttictl(), words, n_words);
        program_run((const char *[]){ "/bin/bash", "-c", line, NULL }, 20, p);
        ck_assert_str_eq(p->err, "");
        ck_assert_int_eq(p->code, 0);
}

static int offers(const struct program *p, const char *word) {
        char line[128], all[1 << 14];

        snprintf(line, sizeof(line), "\n%s\n", word);
        snprintf(all, sizeof(all), "\n%s", p->out);
        return strstr(all, line) != NULL;
}

static size_t count_lines(const char *text) {
        size_t n = 0;

        for (; *text; text++)
                n += *text == '\n';
        return n;
}

START_TEST(every_command_is_offered) {
        struct program p, overview;

        complete("''", 1, &p);
        for (size_t i = 0; i < N_COMMANDS; i++)
                ck_assert_msg(offers(&p, commands[i]), "%s is not in: %s", commands[i], p.out);
        ck_assert_uint_eq(count_lines(p.out), N_COMMANDS + 2); /* and --help, --version */
        program_deinit(&p);
        complete("tr", 1, &p);
        ck_assert_str_eq(p.out, "trace\n");
        program_deinit(&p);
        /* The list above is that of the program. */
        program_run((const char *[]){ program_tuttictl(), "help", NULL }, 10, &overview);
        size_t n = 0;
        for (const char *at = overview.out; (at = strstr(at, "\n  ")); at += 3)
                n++;
        ck_assert_uint_eq(n, N_COMMANDS);
        program_deinit(&overview);
}
END_TEST

/* Every "--option" of a text is offered; returns how many there are. */
static size_t compare_options(const char *text, const struct program *offered, const char *command) {
        size_t n = 0;

        for (const char *at = text; (at = strstr(at, "--")); at += 2) {
                size_t length = strcspn(at, " ]|,\n`");
                char option[64];

                if (length < 4)
                        continue;
                snprintf(option, sizeof(option), "%.*s", (int)length, at);
                ck_assert_msg(offers(offered, option), "%s %s is not in: %s", command, option, offered->out);
                n++;
                at += length - 2;
        }
        return n;
}

START_TEST(every_option_of_a_usage_line_is_offered_and_no_other) {
        struct program p, help;
        char words[64];

        for (size_t i = 1; i < N_COMMANDS; i++) {
                program_run((const char *[]){ program_tuttictl(), "help", commands[i], NULL }, 10, &help);
                help.out[strcspn(help.out, "\n")] = '\0';
                snprintf(words, sizeof(words), "%s --", commands[i]);
                complete(words, 2, &p);
                ck_assert_uint_eq(compare_options(help.out, &p, commands[i]) + 1, count_lines(p.out));
                ck_assert(offers(&p, "--help"));
                program_deinit(&p);
                program_deinit(&help);
        }
        /* run tells of its options below the usage line. */
        program_run((const char *[]){ program_tuttictl(), "help", "run", NULL }, 10, &help);
        complete("run --", 2, &p);
        ck_assert_uint_ge(compare_options(strchr(help.out, '\n'), &p, "run"), 7);
        program_deinit(&p);
        program_deinit(&help);
        complete("run --prefix ''", 3, &p);
        ck_assert_str_eq(p.out, "auto\nall\nnone\n");
        program_deinit(&p);
        complete("diag --level ''", 3, &p);
        ck_assert_str_eq(p.out, "1\n2\n3\n");
        program_deinit(&p);
        complete("plan --op M", 3, &p);
        ck_assert_str_eq(p.out, "MEAN\nMIN\nMAX\n");
        program_deinit(&p);
        complete("diag --tuning /etc/pass", 3, &p);
        ck_assert(offers(&p, "/etc/passwd"));
        program_deinit(&p);
        complete("completion ''", 2, &p);
        ck_assert(offers(&p, "bash") && offers(&p, "zsh"));
        program_deinit(&p);
        complete("help do", 2, &p);
        ck_assert_str_eq(p.out, "doctor\n");
        program_deinit(&p);
}
END_TEST

static void stay(struct replica *me) {
        struct tutti_group *plain = replica_join_group(me, &TUTTI_JOIN(.group = "train"));
        struct tutti_group *evil = replica_join_group(me, &TUTTI_JOIN(.group = "$(>bad)"));

        replica_say(me, "joined");
        replica_hear(me, "end");
        tutti_group_free(evil);
        tutti_group_free(plain);
}

START_TEST(groups_are_offered_and_their_names_are_no_code) {
        struct host *h = host_start(NULL);
        struct replica *r;
        struct program p;
        struct stat st;

        setenv("TUTTI_SOCKET", host_socket(h), 1);
        ck_assert_int_eq(chdir(unit_directory()), 0);
        replicas_spawn(h, 1, stay, NULL, &r);
        replica_expect(r, "joined", 10);
        complete("trace ''", 2, &p);
        ck_assert(offers(&p, "test/train"));
        ck_assert(offers(&p, "test/\\$\\(\\>bad\\)"));
        ck_assert(offers(&p, "--svg"));
        program_deinit(&p);
        complete("dump test/t", 2, &p);
        ck_assert_str_eq(p.out, "test/train\n");
        program_deinit(&p);
        complete("kick test/t", 2, &p);
        ck_assert_str_eq(p.out, "test/train\n");
        program_deinit(&p);
        complete("kick test/train ''", 3, &p);
        ck_assert(offers(&p, "0") && !offers(&p, "test/train"));
        program_deinit(&p);
        ck_assert_int_eq(stat("bad", &st), -1);
        replica_tell(r, "end");
        ck_assert_int_eq(replica_end(r, 10), 0);
        ck_assert_int_eq(chdir("/"), 0);
        host_stop(h);
}
END_TEST

/* zsh need not be here; what it would read can be looked at in any case. */
START_TEST(zsh_is_told_the_same) {
        struct program p, check;
        char text[128], line[1024];

        program_run((const char *[]){ program_tuttictl(), "completion", "zsh", NULL }, 10, &p);
        ck_assert_int_eq(p.code, 0);
        ck_assert_int_eq(strncmp(p.out, "#compdef tuttictl\n", 18), 0);
        for (size_t i = 0; i < N_COMMANDS; i++) {
                snprintf(text, sizeof(text), "\n                '%s:", commands[i]);
                ck_assert_msg(strstr(p.out, text) != NULL, "%s is not described", commands[i]);
                snprintf(text, sizeof(text), "\n        %s) _arguments '--help'", commands[i]);
                ck_assert_msg(strstr(p.out, text) != NULL, "%s has no arguments", commands[i]);
        }
        ck_assert_ptr_nonnull(
                strstr(p.out, "trace) _arguments '--help' '--json' '--svg' '--last:N:' '--epoch:N:' "
                              "'--socket:PATH:_files' '--user:UID:' "
                              "':group:_tuttictl_groups' ;;"));
        ck_assert_ptr_nonnull(strstr(p.out, " '--prefix:value:(auto all none)'"));
        ck_assert_ptr_nonnull(strstr(p.out, " '--level:value:(1 2 3)'"));
        ck_assert_ptr_nonnull(strstr(p.out, " ':group:_tuttictl_groups' ':rank:_tuttictl_ranks'"));
        program_deinit(&p);
        if (access("/usr/bin/zsh", X_OK) < 0 && access("/bin/zsh", X_OK) < 0) {
                printf("# zsh is not installed: it does not check the syntax\n");
                return;
        }
        snprintf(line, sizeof(line), "%s completion zsh | zsh -n /dev/stdin", program_tuttictl());
        program_run((const char *[]){ "/bin/sh", "-c", line, NULL }, 10, &check);
        ck_assert_str_eq(check.err, "");
        ck_assert_int_eq(check.code, 0);
        program_deinit(&check);
}
END_TEST

UNIT_MAIN("ctl-completion", 60, every_command_is_offered,
        every_option_of_a_usage_line_is_offered_and_no_other, groups_are_offered_and_their_names_are_no_code,
        zsh_is_told_the_same)
