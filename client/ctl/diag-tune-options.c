/* The options of `tuttictl diag --tune`. */
#include <getopt.h>
#include <stdlib.h>
#include "diag-tune.h"

enum { OPTION_TUNE, OPTION_TUNING, OPTION_UP_TO, OPTION_JSON, OPTION_SOCKET };

static const struct option long_options[] = {
        { "tune", no_argument, NULL, OPTION_TUNE },
        { "tuning", required_argument, NULL, OPTION_TUNING },
        { "up-to", required_argument, NULL, OPTION_UP_TO },
        { "json", no_argument, NULL, OPTION_JSON },
        { "socket", required_argument, NULL, OPTION_SOCKET },
        { NULL, 0, NULL, 0 },
};

static bool read_up_to(const char *text, uint64_t *ret) {
        char *end;
        *ret = strtoull(text, &end, 10);
        return *text >= '0' && *text <= '9' && !*end && *ret >= TUNE_LEAST && *ret <= UINT64_C(1) << 30;
}

int diag_tune_main(const struct command *self, int argc, char **argv) {
        struct diag_tune_ask ask = { .path = TUNING_PATH, .up_to_bytes = TUNE_MOST };
        struct query q = { .command = self, .page = page_of(stdout) };
        int c;
        opterr = 0;
        optind = 0;
        while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1)
                switch (c) {
                case OPTION_TUNE: break;
                case OPTION_TUNING: ask.path = optarg; break;
                case OPTION_JSON: q.json = true; break;
                case OPTION_SOCKET: ask.socket = optarg; break;
                case OPTION_UP_TO:
                        if (!read_up_to(optarg, &ask.up_to_bytes))
                                return command_misused(self, "--up-to takes 4096 to 1073741824 bytes");
                        break;
                default: return command_misused(self, "unknown or incomplete option %s", argv[optind - 1]);
                }
        if (optind < argc)
                return command_misused(self, "unexpected argument %s", argv[optind]);
        return diag_tune(&q, &ask);
}
