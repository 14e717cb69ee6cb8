/* The example's own parts: what the main job's accuracy and its "identical to the bit" rest on. */
#include "unit.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "alone.h"
#include "failing.h"
#include "sha256.h"

static void check_sha256(const char *text, const char *expected) {
        uint8_t hash[SHA256_BYTES];
        char printed[2 * SHA256_BYTES + 1];

        sha256(text, strlen(text), hash);
        for (int i = 0; i < SHA256_BYTES; i++)
                snprintf(printed + 2 * i, 3, "%02x", hash[i]);
        ck_assert_str_eq(printed, expected);
}

/* The examples of FIPS 180-4, and one whose padding needs a block of its own. */
START_TEST(sha256_is_sha256) {
        check_sha256("", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
        check_sha256("abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        check_sha256("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
        check_sha256("abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmn"
                     "hijklmnoijklmnopjklmnopqklmnopqrlmnopqrsmnopqrstnopqrstu",
                "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1");
}
END_TEST

START_TEST(shards_share_no_image) {
        struct data data;
        unsigned char *seen;

        ck_assert(data_load(&data));
        ck_assert_uint_eq(data.n_train + data.n_test, 1797);
        seen = calloc(data.n_train, 1);
        for (uint32_t r = 0; r < 4; r++) {
                const struct image *batch[DIGITS_BATCH];
                struct shard shard;
                ck_assert(shard_init(&shard, &data, r, 4));
                ck_assert_uint_eq(shard.n_images, 359);
                for (int round = 0; round < 200; round++) {
                        shard_next(&shard, batch);
                        for (uint32_t i = 0; i < shard.n_batch; i++)
                                seen[batch[i] - data.images] |= 1U << r;
                }
                shard_deinit(&shard);
        }
        for (uint32_t i = 0; i < data.n_train; i++)
                ck_assert_uint_eq(seen[i], 1U << i / 359); /* by one shard, and none left out */
        free(seen);
        data_unload(&data);
}
END_TEST

START_TEST(a_round_shows_each_image_once) {
        const struct image *batch[DIGITS_BATCH];
        struct shard shard;
        struct data data;

        ck_assert(data_load(&data));
        ck_assert(shard_init(&shard, &data, 1, 22)); /* 65 images: two minibatches, one image over */
        ck_assert_uint_eq(shard.n_images, 65);
        shard_next(&shard, batch);
        const struct image *first = batch[0];
        for (int i = 1; i < DIGITS_BATCH; i++)
                ck_assert_ptr_ne(batch[i], first);
        shard_next(&shard, batch);
        for (int i = 0; i < DIGITS_BATCH; i++)
                ck_assert_ptr_ne(batch[i], first);
        shard_deinit(&shard);

        ck_assert(shard_init(&shard, &data, 0, DIGITS_TRAIN)); /* one image each */
        ck_assert_uint_eq(shard.n_batch, 1);
        shard_next(&shard, batch);
        ck_assert_ptr_eq(batch[0], data.images);
        shard_deinit(&shard);
        ck_assert(!shard_init(&shard, &data, 0, DIGITS_TRAIN + 1));
        data_unload(&data);
}
END_TEST

/* The slope that the loss really has along one parameter. */
static double slope(const struct net *net, float *parameters, uint32_t i, const struct image *const *batch) {
        const float step = 0x1p-9f;
        static float ignored[32768];
        float was = parameters[i];

        parameters[i] = was + step;
        double above = (double)net_gradient(net, parameters, batch, DIGITS_BATCH, ignored);
        parameters[i] = was - step;
        double below = (double)net_gradient(net, parameters, batch, DIGITS_BATCH, ignored);
        parameters[i] = was;
        return (above - below) / (2.0 * (double)step);
}

START_TEST(the_gradient_is_the_slope_of_the_loss) {
        static float parameters[32768], gradient[32768];
        const struct image *batch[DIGITS_BATCH];
        double largest = 0.0;
        uint32_t n_close = 0;
        struct shard shard;
        struct data data;
        struct net net;

        ck_assert(data_load(&data));
        ck_assert(shard_init(&shard, &data, 0, 4));
        net_init(&net, 16);
        ck_assert_uint_eq(net.n_parameters, 64 * 16 + 16 + 16 * 10 + 10);
        net_fill(&net, parameters);
        shard_next(&shard, batch);
        net_gradient(&net, parameters, batch, DIGITS_BATCH, gradient);
        for (uint32_t i = 0; i < net.n_parameters; i++) {
                double expected = slope(&net, parameters, i, batch), found = (double)gradient[i];
                double difference = fabs(found - expected);
                /* A unit that goes on or off between the two sides bends the slope a little. */
                ck_assert_msg(difference < 0.02, "parameter %u: %g, not %g", i, found, expected);
                n_close += difference < 0.001;
                largest = fmax(largest, fabs(found));
        }
        ck_assert_uint_gt(n_close, net.n_parameters * 95 / 100);
        ck_assert_double_gt(largest, 0.1); /* so that the limits say something */
        shard_deinit(&shard);
        data_unload(&data);
}
END_TEST

START_TEST(training_alone_recognises_digits_and_repeats_itself) {
        static float first[32768], second[32768];
        struct data data;
        struct net net;

        ck_assert(data_load(&data));
        net_init(&net, 128);
        ck_assert(alone_train(&net, &data, 4, 400, NULL, first));
        ck_assert(alone_train(&net, &data, 4, 400, NULL, second));
        ck_assert_double_ge(net_accuracy(&net, first, data.images + data.n_train, data.n_test), 0.95);
        ck_assert_mem_eq(first, second, net.n_parameters * sizeof(float));
        ck_assert(net_difference(&net, first, second) == 0.0f);
        second[77] += 0.5f;
        ck_assert(fabsf(net_difference(&net, first, second) - 0.5f) < 1e-6f);
        second[78] = NAN;
        ck_assert(isnan(net_difference(&net, first, second)));
        data_unload(&data);
}
END_TEST

START_TEST(short_memory_is_said) {
        static float parameters[32768];
        bool is_trained = false;
        int n_failures = 0;
        struct data data;
        struct net net;

        net_init(&net, 4);
        for (unsigned int nth = 1; !is_trained; nth++) {
                failing_at(nth);
                bool is_loaded = data_load(&data);
                is_trained = is_loaded && alone_train(&net, &data, 2, 1, NULL, parameters);
                failing_at(0);
                n_failures += !is_trained;
                if (is_loaded)
                        data_unload(&data);
        }
        ck_assert_int_eq(n_failures, 8); /* two for the data, four arrays, two orders */
}
END_TEST

UNIT_MAIN("digits-example", 60, sha256_is_sha256, shards_share_no_image, a_round_shows_each_image_once,
        the_gradient_is_the_slope_of_the_loss, training_alone_recognises_digits_and_repeats_itself,
        short_memory_is_said)
