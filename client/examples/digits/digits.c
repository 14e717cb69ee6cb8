/* digits: trains a classifier of handwritten digits, every replica on its own shard of the images, with the
 * gradients joined by tuttid.
 *
 *     tuttictl run -n 4 -- digits
 *
 * Afterwards rank 0 trains the same minibatches once more in one process, and both are compared. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <tutti/tutti.h>
#include "alone.h"
#include "data.h"
#include "net.h"
#include "replica.h"
#include "report.h"

struct options {
        uint32_t n_steps, hidden, n_alone; /* n_alone: shards of --alone; 0: train with tuttid */
        bool is_quiet;
};

static const char usage[] =
        "usage: tuttictl run -n N -- digits [--steps N] [--hidden N] [--quiet]\n"
        "       digits --alone[=SHARDS] [--steps N] [--hidden N] [--quiet]\n"
        "Trains a classifier of handwritten digits with N replicas whose gradients meet in tuttid.\n"
        "  --steps N         minibatches of each replica (400)\n"
        "  --hidden N        units of the hidden layer (128; at most 1024)\n"
        "  --alone[=SHARDS]  the same training in one process, without tuttid (4 shards)\n"
        "  --quiet           no progress line\n";

/* A whole number of `lowest`..`highest`, or exit 2 saying so. */
static uint32_t parse_number(const char *option, const char *text, uint32_t lowest, uint32_t highest) {
        char *end = NULL;
        unsigned long long n = text && *text >= '0' && *text <= '9' ? strtoull(text, &end, 10) : 0;
        if (!end || *end || n < lowest || n > highest) {
                fprintf(stderr, "digits: --%s=%s: not a whole number from %u to %u\n", option, text, lowest,
                        highest);
                exit(2);
        }
        return (uint32_t)n;
}

static struct options parse_options(int argc, char **argv) {
        enum { STEPS, HIDDEN, ALONE, QUIET, HELP };
        static const struct option names[] = {
                { "steps", required_argument, NULL, STEPS },
                { "hidden", required_argument, NULL, HIDDEN },
                { "alone", optional_argument, NULL, ALONE },
                { "quiet", no_argument, NULL, QUIET },
                { "help", no_argument, NULL, HELP },
                { 0 },
        };
        struct options o = { .n_steps = 400, .hidden = 128 };
        for (int c; (c = getopt_long(argc, argv, "", names, NULL)) != -1;) {
                if (c == STEPS)
                        o.n_steps = parse_number("steps", optarg, 1, 1000000);
                else if (c == HIDDEN)
                        o.hidden = parse_number("hidden", optarg, 1, NET_MAX_HIDDEN);
                else if (c == ALONE)
                        o.n_alone = optarg ? parse_number("alone", optarg, 1, DIGITS_TRAIN) : 4;
                else if (c == QUIET)
                        o.is_quiet = true;
                else {
                        fputs(usage, c == HELP ? stdout : stderr);
                        exit(c == HELP ? 0 : 2);
                }
        }
        if (optind < argc) {
                fputs(usage, stderr);
                exit(2);
        }
        return o;
}

static bool out_of_memory(void) {
        fprintf(stderr, "digits: out of memory\n");
        return false;
}

static bool run_alone(const struct options *o, const struct data *data) {
        struct progress progress;
        struct net net;

        net_init(&net, o->hidden);
        float *parameters = calloc(net.n_parameters, sizeof(float));
        if (!parameters)
                return out_of_memory();
        progress_begin(&progress, o->is_quiet ? PROGRESS_OFF : PROGRESS_ON, o->n_steps);
        bool is_done = alone_train(&net, data, o->n_alone, o->n_steps, &progress, parameters);
        if (is_done)
                printf("  test accuracy %.1f %%, alone in one process\n",
                        100.0 * net_accuracy(&net, parameters, data->images + data->n_train, data->n_test));
        free(parameters);
        return is_done || out_of_memory();
}

/* What rank 0 says at the end, after the same training alone. */
static bool conclude(const struct options *o, const struct data *data, const struct replica *r,
        const uint8_t hash[SHA256_BYTES], const struct step_times *times) {
        const struct image *test = data->images + data->n_train;
        const float *trained = tutti_buffer_data(r->parameters);
        struct latest latest = replica_latest(r);

        float *alone = calloc(r->net.n_parameters, sizeof(float));
        if (!alone || !alone_train(&r->net, data, r->world_size, o->n_steps, NULL, alone)) {
                free(alone);
                return out_of_memory();
        }
        report_accuracy(net_accuracy(&r->net, trained, test, data->n_test),
                net_accuracy(&r->net, alone, test, data->n_test), net_difference(&r->net, trained, alone));
        report_identity(r->world_size, hash);
        report_times(times, &latest);
        free(alone);
        return true;
}

static bool train_together(
        const struct options *o, const struct data *data, struct replica *r, struct shard *shard) {
        bool is_speaker = r->rank == 0;
        uint8_t hash[SHA256_BYTES];
        struct step_times times;
        struct progress progress;

        if (is_speaker)
                report_begin(&r->net, r->world_size, shard->n_images);
        progress_begin(&progress, is_speaker && !o->is_quiet ? PROGRESS_ON : PROGRESS_OFF, o->n_steps);
        if (!replica_train(r, shard, o->n_steps, &progress) || !replica_compare(r, hash) ||
                !replica_average_times(r, o->n_steps, &times))
                return false;
        return !is_speaker || conclude(o, data, r, hash, &times);
}

static bool run_replica(const struct options *o, const struct data *data) {
        struct shard shard = { 0 };
        struct replica r;
        bool is_done = false;

        if (replica_open(&r, o->hidden)) {
                if (r.world_size > data->n_train)
                        fprintf(stderr, "digits: %u replicas for %u images: too many\n", r.world_size,
                                data->n_train);
                else if (!shard_init(&shard, data, r.rank, r.world_size))
                        out_of_memory();
                else
                        is_done = train_together(o, data, &r, &shard);
        }
        shard_deinit(&shard);
        replica_close(&r);
        return is_done;
}

int main(int argc, char **argv) {
        struct options o = parse_options(argc, argv);
        struct data data;

        if (!data_load(&data)) {
                out_of_memory();
                return 1;
        }
        bool is_done = o.n_alone ? run_alone(&o, &data) : run_replica(&o, &data);
        data_unload(&data);
        return is_done ? 0 : 1;
}
