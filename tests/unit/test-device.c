/* The names of devices. */
#include <string.h>
#include "model/device.h"
#include "unit.h"

START_TEST(names_are_read_and_written) {
        static const struct {
                const char *name;
                uint32_t device;
        } cases[] = { { "CPU:0", 0 }, { "CPU:63", 63 }, { "CPU:999999", 999999 }, { "GPU:0", DEVICE_GPU },
                { "GPU:7", DEVICE_GPU + 7 } };
        char name[DEVICE_NAME_BYTES], buf[64];
        for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
                struct text t;
                ck_assert_uint_eq(device_parse(cases[i].name), cases[i].device);
                ck_assert_str_eq(device_name(cases[i].device, name), cases[i].name);
                text_init(&t, buf, sizeof(buf));
                device_print(cases[i].device, &t);
                ck_assert_str_eq(buf, cases[i].name);
        }
}
END_TEST

START_TEST(E9_what_is_no_device_is_never_guessed) {
        static const char *const names[] = { "", "?", "CPU", "CPU:", "cpu:0", "CPU:00", "CPU:01", "CPU:-1",
                "CPU: 1", "CPU:1 ", "CPU:1000000", "CPU:4294967296", "GPU:99999999999999999999", "TPU:0",
                "GPU:0x1" };
        char name[DEVICE_NAME_BYTES], buf[64];
        struct text t;
        for (size_t i = 0; i < ARRAY_SIZE(names); i++)
                ck_assert_uint_eq(device_parse(names[i]), DEVICE_UNKNOWN);
        ck_assert_str_eq(device_name(DEVICE_UNKNOWN, name), "?");
        ck_assert_str_eq(device_name(1000000, name), "?");
        text_init(&t, buf, sizeof(buf));
        device_print(DEVICE_UNKNOWN, &t);
        ck_assert_str_eq(buf, "an unknown device");
}
END_TEST

UNIT_MAIN("device", 10, names_are_read_and_written, E9_what_is_no_device_is_never_guessed)
