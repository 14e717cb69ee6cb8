/* Owners that clean up at the end of their scope: `CLEANUP(f) T x` calls f(&x). */
#pragma once

#include <stdlib.h>

#define CLEANUP(f) __attribute__((cleanup(f)))

/* Defines `static void type_freep(type **)` for use with CLEANUP. */
#define DEFINE_CLEANUP(type, free_function)                                                                  \
        static inline void free_function##p(type **p) {                                                      \
                if (*p)                                                                                      \
                        free_function(*p);                                                                   \
        }

static inline void freep(void *p) {
        free(*(void **)p);
}

#define CLEANUP_FREE CLEANUP(freep)

/* Moves a pointer out of `*p`, which becomes NULL. */
#define take_pointer(p)                                                                                      \
        __extension__({                                                                                      \
                __typeof__(p) taken_ = (p);                                                                  \
                (p) = NULL;                                                                                  \
                taken_;                                                                                      \
        })
