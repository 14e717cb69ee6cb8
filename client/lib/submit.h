/* Starts a half: numbers it, checks it, sends it in as many packets as it needs. */
#pragma once

#include "lib/half.h"

/* Its key is `key`, or where that is NULL the next number of the membership's sequence. has_key says whether
 * it can be sent. */
void half_take_key(struct half *h, const char *key);

/* Waits for a work that the caller was not given, whose end becomes the thread's, and frees it. The lengths
 * of its results, where tuttid tells them, go to `ret_extents` (by entry; NULL: they are not wanted). */
enum tutti_status work_finish(struct tutti_work *w, uint64_t *ret_extents);

/* `h` without its key (unless it is_keyed), which is `key`, or where that is NULL the next number of the
 * membership's sequence, taken before anything else. A half that is refused here is sent as refused, so that
 * the peers hear of it at once; the work tells the caller. */
enum tutti_status submit(struct half *h, const char *key, struct tutti_work **ret) MUST_USE;
