#include "report.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define BAR_WIDTH        30
#define SECONDS_A_FRAME  0.05
#define STEPS_A_LINE     100
#define LOSS_SMOOTHING   0.05
#define SHOWN_HASH_BYTES 8

double now_seconds(void) {
        struct timespec t;
        clock_gettime(CLOCK_MONOTONIC, &t);
        return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

void progress_begin(struct progress *p, enum progress_kind kind, uint32_t n_steps) {
        *p = (struct progress){
                .is_on = kind == PROGRESS_ON,
                .is_terminal = isatty(STDOUT_FILENO),
                .n_steps = n_steps,
                .began = now_seconds(),
        };
}

static bool is_time_to_show(const struct progress *p, uint32_t step, double now) {
        if (!p->is_on)
                return false;
        if (step == p->n_steps)
                return true;
        return p->is_terminal ? now - p->shown >= SECONDS_A_FRAME : step % STEPS_A_LINE == 0;
}

static void print_bar(uint32_t step, uint32_t n_steps) {
        char bar[BAR_WIDTH + 1];
        size_t n_done = (size_t)step * BAR_WIDTH / n_steps;
        memset(bar, ' ', BAR_WIDTH);
        memset(bar, '=', n_done);
        bar[BAR_WIDTH] = '\0';
        printf("  [%s]", bar);
}

/* 2310 as "2,310". */
static void print_count(uint64_t n) {
        if (n >= 1000) {
                print_count(n / 1000);
                printf(",%03u", (unsigned int)(n % 1000));
        } else {
                printf("%u", (unsigned int)n);
        }
}

void progress_step(struct progress *p, uint32_t step, double loss, double waiting) {
        double now = now_seconds(), elapsed = now - p->began;

        p->loss = step == 1 ? loss : p->loss + LOSS_SMOOTHING * (loss - p->loss);
        if (!is_time_to_show(p, step, now))
                return;
        p->shown = now;
        printf("%s  step %4u/%u", p->is_terminal ? "\r" : "", step, p->n_steps);
        if (p->is_terminal)
                print_bar(step, p->n_steps);
        printf("  loss %.3f   ", p->loss);
        print_count(elapsed > 0.0 ? (uint64_t)(step / elapsed + 0.5) : 0);
        printf(" steps/s");
        if (waiting > 0.0)
                printf("   waiting %.0f %%", 100.0 * waiting / elapsed);
        printf("%s", p->is_terminal ? "\033[K" : "");
        p->is_open = p->is_terminal && step < p->n_steps;
        if (!p->is_open)
                printf("\n");
        fflush(stdout);
}

void progress_interrupt(struct progress *p) {
        if (!p->is_open)
                return;
        p->is_open = false;
        printf("\n");
        fflush(stdout);
}

void report_begin(const struct net *net, uint32_t n_replicas, uint32_t n_images) {
        printf("digits: %u replica%s x %u images, %d-%u-%d network, ", n_replicas, n_replicas == 1 ? "" : "s",
                n_images, DIGITS_PIXELS, net->hidden, DIGITS_CLASSES);
        printf("batch_reduce of %d gradients a step\n\n", NET_TENSORS);
        fflush(stdout);
}

void report_accuracy(double accuracy, double alone_accuracy, double difference) {
        printf("  test accuracy %.1f %%  (alone in one process: %.1f %%, largest difference of a weight "
               "%.2g)\n",
                100.0 * accuracy, 100.0 * alone_accuracy, difference);
}

void report_identity(uint32_t n_replicas, const uint8_t *sha256) {
        printf("  parameters of all %u replicas: identical to the bit (sha256 ", n_replicas);
        for (int i = 0; i < SHOWN_HASH_BYTES; i++)
                printf("%02x", sha256[i]);
        printf("...)\n");
}

static void print_time(const char *what, double seconds) {
        if (seconds < 0.01)
                printf("   %s %.0f us", what, seconds * 1e6);
        else
                printf("   %s %.1f ms", what, seconds * 1e3);
}

void report_times(const struct step_times *times, const struct latest *latest) {
        printf("\nwhere the time went, per step:");
        print_time("compute", times->compute);
        print_time("arriving late", times->late);
        printf(" (rank %u most often last: %.0f %%)", latest->rank, 100.0 * latest->share);
        print_time("reduce", times->reduce);
        print_time("wake-up", times->wake);
        printf("\n");
}
