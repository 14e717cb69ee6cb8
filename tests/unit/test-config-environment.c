/* Keys as variables of the environment. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "config.h"
#include "unit.h"

static void take(struct config *c, int n, const char *const *environment) {
        char why[400] = "left";
        int r = config_take_environment(c, environment, why, sizeof(why));
        ck_assert_msg(r == n, "%d: %s", r, why);
        ck_assert_str_eq(why, "");
}

static void refused(const char *entry, const char *expected) {
        struct config c, before;
        char why[400], good[] = "TUTTID_QUOTA_PENDING=9", bad[200];
        config_init(&c);
        before = c;
        snprintf(bad, sizeof(bad), "%s", entry);
        ck_assert_int_eq(
                config_take_environment(&c, (const char *[]){ good, bad, NULL }, why, sizeof(why)), -EINVAL);
        ck_assert_str_eq(why, expected);
        ck_assert_mem_eq(&c, &before, sizeof(c));
}

START_TEST(a_variable_sets_its_key_over_what_is_there) {
        struct config c;
        char why[400];
        config_init(&c);
        ck_assert_int_eq(config_set(&c, "quota.groups", "7", why, sizeof(why)), 0);
        ck_assert_int_eq(config_set(&c, "quota.pending", "8", why, sizeof(why)), 0);
        take(&c, 4,
                (const char *[]){ "HOME=/", "TUTTID_QUOTA_GROUPS=9", "TUTTID_DAEMON_LOG_LEVEL=info",
                        "TUTTID_TIME_DEFAULT_TIMEOUT=3 s", "TUTTID_DAEMON_GROUP=", NULL });
        ck_assert_uint_eq(c.quota.groups, 9);
        ck_assert_uint_eq(c.quota.pending, 8);
        ck_assert_int_eq(c.log_level, LOG_LEVEL_INFO);
        ck_assert_uint_eq(c.default_timeout_ns, UINT64_C(3000000000));
        ck_assert_str_eq(c.socket_group, "");
}
END_TEST

/* By its own name, which no other key has. */
START_TEST(every_key_has_a_variable) {
        struct config_description d, other;
        struct config plain, c;
        char name[100], another[100], entry[300];
        config_init(&plain);
        size_t n = 0;
        for (; config_describe(n, &d); n++) {
                config_name_variable(d.key, name, sizeof(name));
                snprintf(entry, sizeof(entry), "%s=%s", name, d.preset);
                c = plain;
                take(&c, 1, (const char *[]){ entry, NULL });
                ck_assert_mem_eq(&c, &plain, sizeof(c));
                for (size_t i = 0; i < n && config_describe(i, &other); i++) {
                        config_name_variable(other.key, another, sizeof(another));
                        ck_assert_str_ne(name, another);
                }
        }
        ck_assert_uint_gt(n, 30);
        config_name_variable("quota.mapped-bytes", name, sizeof(name));
        ck_assert_str_eq(name, "TUTTID_QUOTA_MAPPED_BYTES");
}
END_TEST

START_TEST(a_value_that_is_wrong_names_the_variable) {
        refused("TUTTID_QUOTA_MAPPED_BYTES=64GB", "TUTTID_QUOTA_MAPPED_BYTES = 64GB: unknown unit \"GB\"; "
                                                  "use a number of bytes or KiB, MiB, GiB, TiB.");
        refused("TUTTID_QUOTA_GROUPS=", "TUTTID_QUOTA_GROUPS = : not a whole number; use 1 to 1048576.");
        refused("TUTTID_DAEMON_SOCKET=rel",
                "TUTTID_DAEMON_SOCKET = rel: not absolute; use an absolute path of at most 107 bytes.");
}
END_TEST

START_TEST(a_variable_that_is_no_key_names_its_neighbours) {
        refused("TUTTID_QUOTA_GROUP=1", "TUTTID_QUOTA_GROUP = 1: unknown variable; did you mean "
                                        "TUTTID_DAEMON_GROUP or TUTTID_QUOTA_GROUPS?");
        refused("TUTTID_LOG_LEVEL=info",
                "TUTTID_LOG_LEVEL = info: unknown variable; did you mean TUTTID_DAEMON_LOG_LEVEL?");
        refused("TUTTID_QOUTA_GROUPS=1",
                "TUTTID_QOUTA_GROUPS = 1: unknown variable; did you mean TUTTID_QUOTA_GROUPS?");
        refused("TUTTID_DAEMON_COLOUR_OF_THE_HOUSE=red",
                "TUTTID_DAEMON_COLOUR_OF_THE_HOUSE = red: unknown variable; tuttid --help lists all keys.");
        refused("TUTTID_GPU=no", "TUTTID_GPU = no: unknown variable; tuttid --help lists all keys.");
        refused("TUTTID_QUOTA_1000_GROUPS=1",
                "TUTTID_QUOTA_1000_GROUPS = 1: limits of one user stand in the file, or behind --set.");
}
END_TEST

/* Those of clients, and what Kubernetes tells of a service that is called tuttid. */
START_TEST(variables_of_others_are_left_alone) {
        struct config c, before;
        config_init(&c);
        before = c;
        take(&c, 0,
                (const char *[]){ "TUTTI_SOCKET=rel", "TUTTI_DAEMON=x", "TUTTID=x", "tuttid_quota_groups=1",
                        "TUTTID_SERVICE_HOST=10.0.0.1", "TUTTID_SERVICE_PORT=80",
                        "TUTTID_PORT=tcp://10.0.0.1:80", "TUTTID_PORT_80_TCP=tcp://10.0.0.1:80",
                        "TUTTID_PORT_80_TCP_PROTO=tcp", "TUTTID_PORT_80_TCP_ADDR=10.0.0.1",
                        "TUTTID_GPU_SERVICE_HOST=10.0.0.1", "TUTTID_GPU_PORT=tcp://10.0.0.1:80",
                        "TUTTID_GPU_SERVICE_PORT_HTTP=80", "TUTTID_LANE_PORT_80_TCP=tcp://10.0.0.1:80",
                        "TUTTID_QUOTA_GROUPS", "TUTTID_=", "", NULL });
        ck_assert_mem_eq(&c, &before, sizeof(c));
}
END_TEST

START_TEST(names_without_end_are_left_alone) {
        static char entry[100000];
        struct config c, before;
        config_init(&c);
        before = c;
        memset(entry, 'Q', sizeof(entry) - 1);
        memcpy(entry, "TUTTID_QUOTA_", 13);
        memcpy(entry + sizeof(entry) - 3, "=1", 2);
        take(&c, 0, (const char *[]){ entry, NULL });
        ck_assert_mem_eq(&c, &before, sizeof(c));
}
END_TEST

UNIT_MAIN("config-environment", 10, a_variable_sets_its_key_over_what_is_there, every_key_has_a_variable,
        a_value_that_is_wrong_names_the_variable, a_variable_that_is_no_key_names_its_neighbours,
        variables_of_others_are_left_alone, names_without_end_are_left_alone)
