#include "net.h"

#include <math.h>
#include <string.h>

#define LEARNING_RATE 0.1f
#define MOMENTUM      0.9f
#define WEIGHTS_SEED  64

enum { W1, B1, W2, B2 };

/* What one image makes of the network. */
struct activations {
        float hidden[NET_MAX_HIDDEN];
        float classes[DIGITS_CLASSES]; /* scores, then probabilities, then their gradient */
};

static void set_tensor(struct net *net, int i, const char *name, uint32_t rows, uint32_t columns) {
        net->tensors[i] = (struct tensor){
                .name = name,
                .n_dims = rows ? 2 : 1,
                .shape = { rows ? rows : columns, rows ? columns : 0 },
                .first = net->n_parameters,
                .count = (rows ? rows : 1) * columns,
        };
        net->n_parameters += net->tensors[i].count;
}

void net_init(struct net *net, uint32_t hidden) {
        *net = (struct net){ .hidden = hidden };
        set_tensor(net, W1, "W1", DIGITS_PIXELS, hidden);
        set_tensor(net, B1, "b1", 0, hidden);
        set_tensor(net, W2, "W2", hidden, DIGITS_CLASSES);
        set_tensor(net, B2, "b2", 0, DIGITS_CLASSES);
}

/* Uniform, with a variance of 2 by the number of inputs (He et al., 2015). */
static void fill_weights(const struct tensor *t, float *parameters, struct prng *prng) {
        float limit = sqrtf(6.0f / (float)t->shape[0]);
        for (uint32_t i = 0; i < t->count; i++)
                parameters[t->first + i] = limit * prng_float(prng);
}

void net_fill(const struct net *net, float *parameters) {
        struct prng prng = { WEIGHTS_SEED };
        memset(parameters, 0, net->n_parameters * sizeof(*parameters));
        fill_weights(&net->tensors[W1], parameters, &prng);
        fill_weights(&net->tensors[W2], parameters, &prng);
}

/* y += a x */
static void add_scaled(float *restrict y, float a, const float *restrict x, uint32_t n) {
        for (uint32_t i = 0; i < n; i++)
                y[i] += a * x[i];
}

/* From pixels to scores. Zeros are skipped: half of the pixels are. */
static void forward(
        const struct net *net, const float *parameters, const float *pixels, struct activations *a) {
        const struct tensor *t = net->tensors;
        const float *w1 = parameters + t[W1].first, *w2 = parameters + t[W2].first;

        memcpy(a->hidden, parameters + t[B1].first, net->hidden * sizeof(float));
        for (uint32_t i = 0; i < DIGITS_PIXELS; i++)
                if (pixels[i] != 0.0f)
                        add_scaled(a->hidden, pixels[i], w1 + (size_t)i * net->hidden, net->hidden);
        memcpy(a->classes, parameters + t[B2].first, sizeof(a->classes));
        for (uint32_t j = 0; j < net->hidden; j++)
                if (a->hidden[j] > 0.0f)
                        add_scaled(a->classes, a->hidden[j], w2 + (size_t)j * DIGITS_CLASSES, DIGITS_CLASSES);
                else
                        a->hidden[j] = 0.0f;
}

static uint32_t best_class(const float *scores) {
        uint32_t best = 0;
        for (uint32_t k = 1; k < DIGITS_CLASSES; k++)
                if (scores[k] > scores[best])
                        best = k;
        return best;
}

/* Turns scores into the gradient of the cross-entropy by them; returns the cross-entropy. */
static float softmax_gradient(float *scores, uint32_t label) {
        float top = scores[best_class(scores)], own = scores[label], sum = 0.0f;
        for (uint32_t k = 0; k < DIGITS_CLASSES; k++)
                sum += scores[k] = expf(scores[k] - top);
        for (uint32_t k = 0; k < DIGITS_CLASSES; k++)
                scores[k] /= sum;
        scores[label] -= 1.0f;
        return logf(sum) - (own - top);
}

/* Adds the gradient of one image. */
static void backward(const struct net *net, const float *parameters, const float *pixels,
        struct activations *a, float *gradient) {
        const struct tensor *t = net->tensors;
        const float *w2 = parameters + t[W2].first;
        float *d_w1 = gradient + t[W1].first, *d_w2 = gradient + t[W2].first;

        add_scaled(gradient + t[B2].first, 1.0f, a->classes, DIGITS_CLASSES);
        for (uint32_t j = 0; j < net->hidden; j++) {
                float down = 0.0f;
                if (a->hidden[j] > 0.0f) {
                        const float *row = w2 + (size_t)j * DIGITS_CLASSES;
                        add_scaled(
                                d_w2 + (size_t)j * DIGITS_CLASSES, a->hidden[j], a->classes, DIGITS_CLASSES);
                        for (uint32_t k = 0; k < DIGITS_CLASSES; k++)
                                down += row[k] * a->classes[k];
                }
                a->hidden[j] = down; /* from here on the gradient by the unit's input */
        }
        add_scaled(gradient + t[B1].first, 1.0f, a->hidden, net->hidden);
        for (uint32_t i = 0; i < DIGITS_PIXELS; i++)
                if (pixels[i] != 0.0f)
                        add_scaled(d_w1 + (size_t)i * net->hidden, pixels[i], a->hidden, net->hidden);
}

float net_gradient(const struct net *net, const float *parameters, const struct image *const *images,
        uint32_t n, float *gradient) {
        struct activations a;
        float loss = 0.0f, scale = 1.0f / (float)n;

        memset(gradient, 0, net->n_parameters * sizeof(*gradient));
        for (uint32_t i = 0; i < n; i++) {
                forward(net, parameters, images[i]->pixels, &a);
                loss += softmax_gradient(a.classes, images[i]->label);
                for (uint32_t k = 0; k < DIGITS_CLASSES; k++)
                        a.classes[k] *= scale;
                backward(net, parameters, images[i]->pixels, &a, gradient);
        }
        return loss * scale;
}

void net_update(const struct net *net, float *parameters, float *velocity, const float *gradient) {
        for (uint32_t i = 0; i < net->n_parameters; i++) {
                velocity[i] = MOMENTUM * velocity[i] + gradient[i];
                parameters[i] -= LEARNING_RATE * velocity[i];
        }
}

double net_accuracy(const struct net *net, const float *parameters, const struct image *images, uint32_t n) {
        struct activations a;
        uint32_t n_right = 0;

        for (uint32_t i = 0; i < n; i++) {
                forward(net, parameters, images[i].pixels, &a);
                n_right += best_class(a.classes) == images[i].label;
        }
        return n ? (double)n_right / n : 0.0;
}

float net_difference(const struct net *net, const float *a, const float *b) {
        float most = 0.0f;
        for (uint32_t i = 0; i < net->n_parameters; i++) {
                float difference = fabsf(a[i] - b[i]);
                if (difference > most || isnan(difference))
                        most = difference;
        }
        return most;
}
