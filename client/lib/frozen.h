/* A collective that its caller has prepared: a half that was checked once, in wire form, to be submitted many
 * times (tutti_prepare_...). It holds its buffers and its result object, and belongs to its membership.
 *
 * Values lie in host memory that tuttid knows and are dense; everything else would have to be looked at each
 * time, and is refused. */
#pragma once

#include "base/sip.h"
#include "lib/half.h"

struct tutti_prepared {
        struct list node; /* in the group's */
        struct half half; /* to be copied; its caller's values are not looked at any more */
        struct half_options options;
        struct entry *entries; /* [half.n_entries] */
        struct tutti_buffer **uses;
        uint32_t n_uses;
        struct tutti_object *object; /* NULL: to buffers */
        /* Under `sending`: what tells it from others, for this membership; 0: not known yet. */
        uint64_t printed;
        struct sip print;
};

/* `h` has no key. On failure the thread's error says why. */
enum tutti_status frozen_make(struct half *h, struct tutti_prepared **ret) MUST_USE;
/* As after half_check; NO_MEMORY. */
enum status frozen_use(const struct tutti_prepared *p, struct tutti_work *w, struct half_options *ret_options,
        struct entry *ret_only, struct error *err) MUST_USE;
/* Under `sending`. */
struct sip frozen_print(struct tutti_prepared *p, const struct msg_submit *m);
/* All of a membership that ends; with the connection, only their memory. Takes `lock`. */
void frozen_end_all(struct tutti_group *g);
void frozen_free_all(struct tutti_group *g);
