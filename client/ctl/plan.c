/* How tuttid would carry out a collective, and why so: asked, not run. */
#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include "json.h"
#include "query.h"
#include "rows.h"

#define MAX_VALUES   256
#define MAX_REPLICAS 1024
#define OPS          "SUM, MEAN, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR"

struct plan_ask {
        const struct command *command;
        const char *socket;
        bool json;
        struct tutti_options options;
        struct tutti_plan_question question;
        struct tutti_value values[MAX_VALUES];
        int32_t axes[TUTTI_MAX_DIMS];
};

enum {
        OPTION_JSON,
        OPTION_SOCKET,
        OPTION_OP,
        OPTION_KIND,
        OPTION_GATHER,
        OPTION_REDUCE_SCATTER,
        OPTION_AXES,
        OPTION_ALGORITHM,
        OPTION_DEVICE,
        OPTION_ON,
        OPTION_IMPLEMENTATION,
        OPTION_NUM_PACKS,
        OPTION_BYTES,
        OPTION_SMALL_BYTES,
        OPTION_SMALL_GROUP,
        OPTION_REPRODUCIBLE
};

static const struct option long_options[] = {
        { "json", no_argument, NULL, OPTION_JSON },
        { "socket", required_argument, NULL, OPTION_SOCKET },
        { "op", required_argument, NULL, OPTION_OP },
        { "broadcast", no_argument, NULL, OPTION_KIND },
        { "gather", required_argument, NULL, OPTION_GATHER },
        { "reduce-scatter", required_argument, NULL, OPTION_REDUCE_SCATTER },
        { "axes", required_argument, NULL, OPTION_AXES },
        { "algorithm", required_argument, NULL, OPTION_ALGORITHM },
        { "device", required_argument, NULL, OPTION_DEVICE },
        { "on", required_argument, NULL, OPTION_ON },
        { "implementation", required_argument, NULL, OPTION_IMPLEMENTATION },
        { "num-packs", required_argument, NULL, OPTION_NUM_PACKS },
        { "bytes-per-pack", required_argument, NULL, OPTION_BYTES },
        { "small-bytes", required_argument, NULL, OPTION_SMALL_BYTES },
        { "small-group", required_argument, NULL, OPTION_SMALL_GROUP },
        { "reproducible", no_argument, NULL, OPTION_REPRODUCIBLE },
        { NULL, 0, NULL, 0 },
};

/* --- words --- */

static bool read_number(const char *text, uint64_t most, uint64_t *ret) {
        char *end;
        unsigned long long n = strtoull(text, &end, 10);
        if (*text < '0' || *text > '9' || *end || n > most)
                return false;
        *ret = n;
        return true;
}

static bool read_op(const char *text, enum tutti_op *ret) {
        for (enum tutti_op op = TUTTI_SUM; op <= TUTTI_LOR; op++)
                if (strcasecmp(text, tutti_op_name(op)) == 0) {
                        *ret = op;
                        return true;
                }
        return false;
}

/* "0", "-1", "0,2" */
static bool read_axes(struct plan_ask *a, const char *text, uint32_t most) {
        a->question.n_axes = 0;
        a->question.axes = a->axes;
        for (;;) {
                char *end;
                long axis = strtol(text, &end, 10);
                if (end == text || axis < -TUTTI_MAX_DIMS || axis >= TUTTI_MAX_DIMS ||
                        a->question.n_axes == most)
                        return false;
                a->axes[a->question.n_axes++] = (int32_t)axis;
                if (*end == '\0')
                        return true;
                if (*end != ',')
                        return false;
                text = end + 1;
        }
}

static bool read_implementation(const char *text, enum tutti_implementation *ret) {
        static const char *const words[] = { "auto", "ring", "nccl" };
        for (unsigned int i = 0; i < 3; i++)
                if (strcasecmp(text, words[i]) == 0) {
                        *ret = (enum tutti_implementation)(TUTTI_AUTO + i);
                        return true;
                }
        return false;
}

static bool read_dtype(const char *text, size_t n, enum tutti_dtype *ret) {
        for (enum tutti_dtype d = TUTTI_U8; d <= TUTTI_C128; d++)
                if (strlen(tutti_dtype_name(d)) == n && strncmp(text, tutti_dtype_name(d), n) == 0) {
                        *ret = d;
                        return true;
                }
        return false;
}

/* "f32[1024,10]", "i8" is a scalar. */
static bool read_value(const char *text, struct tutti_value *ret) {
        size_t n = strcspn(text, "[");
        const char *at = text + n;
        *ret = TUTTI_VALUE(.n_dims = 0);
        if (!read_dtype(text, n, &ret->dtype))
                return false;
        while (*at == '[' || *at == ',') {
                char *end;
                if (ret->n_dims == TUTTI_MAX_DIMS || at[1] < '0' || at[1] > '9')
                        return false;
                errno = 0;
                ret->shape[ret->n_dims++] = strtoull(at + 1, &end, 10);
                if (errno)
                        return false;
                at = end;
        }
        return ret->n_dims == 0 ? *at == '\0' : strcmp(at, "]") == 0;
}

/* --- the command line --- */

static bool read_packing(struct tutti_options *o, int c, const char *text) {
        uint64_t n;
        if (!read_number(text, c == OPTION_BYTES || c == OPTION_SMALL_BYTES ? INT64_MAX : UINT32_MAX, &n))
                return false;
        if (c == OPTION_NUM_PACKS)
                o->num_packs = (uint32_t)n;
        else if (c == OPTION_BYTES)
                o->bytes_per_pack = n;
        else if (c == OPTION_SMALL_BYTES)
                o->agg_small_grads_max_bytes = n;
        else
                o->agg_small_grads_max_group = (uint32_t)n;
        return true;
}

static bool read_world(struct plan_ask *a, const char *text) {
        uint64_t n;
        if (!read_number(text, MAX_REPLICAS, &n) || n == 0)
                return false;
        a->question.world_size = (uint32_t)n;
        return true;
}

/* NULL, or what the option takes. */
static const char *read_value_of(struct plan_ask *a, int c) {
        switch (c) {
        case OPTION_OP: return read_op(optarg, &a->question.op) ? NULL : "one of " OPS;
        case OPTION_GATHER:
        case OPTION_REDUCE_SCATTER: return read_axes(a, optarg, 1) ? NULL : "an axis from -8 to 7";
        case OPTION_AXES: return read_axes(a, optarg, TUTTI_MAX_DIMS) ? NULL : "axes from -8 to 7, like 0,2";
        case OPTION_IMPLEMENTATION:
                return read_implementation(optarg, &a->options.implementation) ? NULL : "auto, ring or nccl";
        case 'n': return read_world(a, optarg) ? NULL : "a number of replicas from 1 to 1024";
        default: return read_packing(&a->options, c, optarg) ? NULL : "a number from 0 on";
        }
}

/* NULL, or what the option takes. */
static const char *read_option(struct plan_ask *a, int c) {
        switch (c) {
        case OPTION_JSON: a->json = true; return NULL;
        case OPTION_SOCKET: a->socket = optarg; return NULL;
        case OPTION_KIND: a->question.kind = TUTTI_KIND_BROADCAST; return NULL;
        case OPTION_ALGORITHM: a->options.algorithm = optarg; return NULL;
        case OPTION_DEVICE: a->options.device = optarg; return NULL;
        case OPTION_ON: a->question.devices = optarg; return NULL;
        case OPTION_REPRODUCIBLE: a->options.reproducible = 1; return NULL;
        case OPTION_GATHER: a->question.kind = TUTTI_KIND_GATHER; break;
        case OPTION_REDUCE_SCATTER: a->question.kind = TUTTI_KIND_REDUCE_SCATTER; break;
        }
        return read_value_of(a, c);
}

static const char *option_name(int c) {
        for (const struct option *o = long_options; o->name; o++)
                if (o->val == c)
                        return o->name;
        return "n";
}

/* -1: go on; else the exit code. */
static int read_arguments(struct plan_ask *a, int argc, char **argv) {
        int c;
        opterr = 0;
        optind = 0;
        while ((c = getopt_long(argc, argv, "n:", long_options, NULL)) != -1) {
                const char *takes;
                if (c == '?')
                        return command_misused(
                                a->command, "unknown or incomplete option %s", argv[optind - 1]);
                takes = read_option(a, c);
                if (takes)
                        return command_misused(a->command, "%s%s takes %s, not %s", c == 'n' ? "-" : "--",
                                option_name(c), takes, optarg);
        }
        if (optind == argc)
                return command_misused(a->command, "of which values? Name some like f32[1024,10]");
        for (; optind < argc; optind++) {
                if (a->question.n_values == MAX_VALUES)
                        return command_misused(a->command, "at most %d values", MAX_VALUES);
                if (!read_value(argv[optind], &a->values[a->question.n_values++]))
                        return command_misused(
                                a->command, "%s is no value; name it like f32[1024,10]", argv[optind]);
        }
        return -1;
}

/* --- the answer --- */

static void print_plan(const struct tutti_answer *answer) {
        for (uint32_t i = 0; i < answer->n_rows; i++) {
                const struct tutti_row_plan *p = &answer->rows[i].plan;
                if (answer->rows[i].type != TUTTI_ROW_PLAN)
                        continue;
                if (*p->algorithm)
                        printf("%s, because %s\n\n", p->algorithm, p->why);
                fputs(p->text, stdout);
        }
}

static char *whole_text(const struct tutti_answer *answer) {
        size_t n = 1;
        for (uint32_t i = 0; i < answer->n_rows; i++)
                n += answer->rows[i].type == TUTTI_ROW_PLAN ? strlen(answer->rows[i].plan.text) : 0;
        char *text = calloc(1, n), *end = text;
        for (uint32_t i = 0; text && i < answer->n_rows; i++)
                if (answer->rows[i].type == TUTTI_ROW_PLAN)
                        end = stpcpy(end, answer->rows[i].plan.text);
        return text;
}

static json_t *plan_json(const struct tutti_answer *answer) {
        const struct tutti_row *row = rows_next(answer, TUTTI_ROW_PLAN, NULL);
        char *text = whole_text(answer);
        json_t *j = row && text ? json_object() : NULL;
        if (j) {
                const struct tutti_row_plan *p = &row->plan;
                json_put(&j, "algorithm", json_text(p->algorithm));
                json_put(&j, "order", json_text(p->order));
                json_put(&j, "device", json_text(p->device));
                json_put(&j, "why", json_text(p->why));
                json_put(&j, "fallback", json_text_or_null(p->fallback));
                json_put(&j, "steps", json_count(p->n_steps));
                json_put(&j, "phases", json_count(p->n_phases));
                json_put(&j, "scratch_bytes", json_count(p->scratch_bytes));
                json_put(&j, "moved_bytes", json_count(p->moved_bytes));
                json_put(&j, "text", json_text(text));
        }
        free(text);
        return j;
}

static int plan_main(const struct command *self, int argc, char **argv) {
        struct plan_ask a = { .command = self,
                .options = TUTTI_OPTIONS(.timeout = 0),
                .question =
                        TUTTI_PLAN_QUESTION(.kind = TUTTI_KIND_REDUCE, .op = TUTTI_SUM, .world_size = 4) };
        struct query q = { .command = self, .page = page_of(stdout) };
        _cleanup_answer_ struct tutti_answer *answer = NULL;
        int r = read_arguments(&a, argc, argv);
        if (r >= 0)
                return r;
        a.question.values = a.values;
        a.question.options = &a.options;
        if (a.question.kind == TUTTI_KIND_BROADCAST || a.question.kind == TUTTI_KIND_GATHER)
                a.question.op = TUTTI_OP_UNSPECIFIED;
        else if (a.question.kind == TUTTI_KIND_REDUCE && a.question.n_values > 1)
                a.question.kind = TUTTI_KIND_BATCH_REDUCE;
        q.json = a.json;
        enum tutti_status status = tutti_open(a.socket, &q.t);
        if (status != TUTTI_OK)
                return query_report(&q, status);
        status = tutti_admin_plan(q.t, &a.question, &answer);
        if (status != TUTTI_OK)
                r = query_refused(&q, status);
        else if (a.json)
                r = query_put_json(&q, plan_json(answer), CTL_WELL);
        else
                print_plan(answer);
        tutti_close(q.t);
        return r < 0 ? CTL_WELL : r;
}

const struct command command_plan = {
        .name = "plan",
        .usage = "plan [-n N] [--op SUM|MEAN|PROD|MIN|MAX|BAND|BOR|BXOR|LAND|LOR] [--broadcast] [--gather "
                 "AXIS] [--reduce-scatter AXIS] [--axes "
                 "AXIS,...] "
                 "[--algorithm one_device|hierarchical_copy|library] "
                 "[--on DEVICE,...] [--device DEVICE] [--implementation auto|ring|nccl] [--reproducible] "
                 "[--num-packs N] "
                 "[--bytes-per-pack BYTES] [--small-bytes BYTES] [--small-group N] [--json] [--socket PATH] "
                 "DTYPE[SHAPE]...",
        .summary = "how a collective of N (4) replicas would be carried out, and why so; nothing is run",
        .help = "  tuttictl plan -n 8 --op MEAN 'f32[1024,10]' f16\n"
                "\n"
                "--small-bytes and --small-group are TensorFlow's agg_small_grads_max_bytes and _group.\n"
                "It is a reduction; of several values a batch; --axes are those it goes over. A\n"
                "reduce_scatter has even shares. Values are in host memory, or --on devices, of which the\n"
                "replicas have one each, in turn:\n"
                "  tuttictl plan --on GPU:0,GPU:1 'f32[1000000]'\n"
                "What tuttid would refuse is refused: exit code 1. docs/algorithms.md explains what is\n"
                "printed.\n",
        .main = plan_main,
};
