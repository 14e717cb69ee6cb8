#include "viewer.h"

#include <string.h>

static bool has_shown(const struct viewer *v, const char *secret) {
        uint32_t n = v->n_shown < MAX_SHOWN_SECRETS ? v->n_shown : MAX_SHOWN_SECRETS;
        for (uint32_t i = 0; i < n; i++)
                if (strcmp(v->shown[i], secret) == 0)
                        return true;
        return false;
}

void viewer_show(struct viewer *v, const char *secret) {
        size_t n = strlen(secret);
        if (n == 0 || n >= MAX_SECRET_BYTES || has_shown(v, secret))
                return;
        memcpy(v->shown[v->n_shown++ % MAX_SHOWN_SECRETS], secret, n + 1);
}

bool viewer_sees(const struct viewer *v, uint32_t uid, const char *secret) {
        return uid == v->uid && (v->sees_all || secret[0] == '\0' || has_shown(v, secret));
}
