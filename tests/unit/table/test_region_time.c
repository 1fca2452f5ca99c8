/* SPDX-License-Identifier: MIT */
/*
 * Region time: it never goes back, not over restarts, boots and wall clocks that are set, and an
 * unclean boot is told from a clean one. The clocks of the machine are the subject, so these tests
 * read them; none waits. A boot is what it leaves in the file: another boot id, and a heartbeat
 * some time ago.
 */
#define _GNU_SOURCE
#include "unit/region_file.h"

#include "table/clock.h"

#define TEN_MINUTES (10 * MINUTE)
#define AT_MOST                                                                                    \
    (5 * MINUTE) /* what a test may take, also on a machine that has stopped for long              \
                  */

static struct region enter(uint8_t clock)
{
    const struct stint_table_options options = small_file(clock);
    return must_open(&options);
}

static struct region open_real(void)
{
    return open_file(STINT_CLOCK_REAL);
}

/* Closes the region, and leaves in the file what a boot leaves after `unavailable_ns` of wall
 * clock. */
static void boot(struct region *region, bool clean, int64_t unavailable_ns)
{
    region_close(region);
    struct region_header header = read_header();
    header.boot_id ^= 2;
    header.clean = clean;
    header.heartbeat_wall_ns -= unavailable_ns;
    write_header(&header);
}

/* `unavailable_ns` later than before, give or take what the test itself took. */
static void assert_went_on(uint64_t before_ns, uint64_t now_ns, uint64_t unavailable_ns)
{
    assert_true(now_ns >= before_ns + unavailable_ns);
    assert_true(now_ns < before_ns + unavailable_ns + AT_MOST);
}

/* The wall clock at region time now, by the anchor that calendars count from. */
static void assert_anchored(const struct region *region)
{
    int64_t off_ns = region->header->epoch_ns + (int64_t)region_now(region) - clock_wall_ns();
    assert_true(off_ns < (int64_t)S && off_ns > -(int64_t)AT_MOST);
}

SETUP
{
    name_path();
    alarm(120); /* a lock that never opens is a failure, too */
}

TEARDOWN
{
    remove_file();
}

/* A virtual clock says what was set, no more, and says it again after a restart and a boot. */
TEST(test_a_virtual_clock_stands_still)
{
    struct region region = enter(STINT_CLOCK_VIRTUAL);
    region_settle(&region);
    assert_int_equal(region_now(&region), 0);
    region.header->virtual_now_ns = 7 * DAY;
    assert_int_equal(region_now(&region), 7 * DAY);
    boot(&region, false, (int64_t)TEN_MINUTES);
    region = enter(STINT_CLOCK_VIRTUAL);
    assert_false(region.after_crash);
    assert_int_equal(region_now(&region), 7 * DAY);
    region_settle(&region);
    region_close(&region);
}

/* A real clock begins at 0, at the wall clock's time, and goes on. */
TEST(test_a_real_clock_begins_at_zero)
{
    struct region region = open_real();
    uint64_t first_ns = region_now(&region), last_ns = first_ns;
    assert_true(first_ns < AT_MOST);
    assert_anchored(&region);
    while (last_ns == first_ns)
        last_ns = region_now(&region);
    assert_true(last_ns > first_ns);
    region_close(&region);
}

/* Within one boot nothing but the boot's own clock counts: not the wall clock, not a heartbeat. */
TEST(test_a_restart_does_not_ask_the_wall_clock)
{
    struct region region = open_real();
    int64_t offset_ns = region.header->clock_offset_ns, epoch_ns = region.header->epoch_ns;
    uint64_t before_ns = region_now(&region);
    region_close(&region);
    for (int sign = -1; sign <= 1; sign += 2) {
        region = open_real();
        region.header->heartbeat_wall_ns += sign * (int64_t)DAY;
        region.header->clean = 0;
        region.is_settled = false; /* as kill -9 would leave it: closed by the system alone */
        region_close(&region);
        region = open_real();
        assert_false(region.after_crash);
        assert_int_equal(region.header->clock_offset_ns, offset_ns);
        assert_int_equal(region.header->epoch_ns, epoch_ns);
        assert_went_on(before_ns, region_now(&region), 0);
        region_close(&region);
    }
}

/* Over a boot time goes on by the wall clock, and calendars stay where they are. */
TEST(test_time_goes_on_over_a_boot)
{
    struct region region = open_real();
    uint64_t before_ns = region_now(&region);
    boot(&region, true, (int64_t)TEN_MINUTES);
    region = open_real();
    assert_went_on(before_ns, region_now(&region), TEN_MINUTES);
    assert_anchored(&region);
    assert_int_equal(region.header->boot_id, clock_boot_id());
    region_close(&region);
}

/* A wall clock that was set back while the machine was off counts as no time away. */
TEST(test_a_wall_clock_set_back_is_no_time)
{
    struct region region = open_real();
    region.header->clock_offset_ns += (int64_t)DAY; /* a region that is a day old */
    uint64_t before_ns = region_now(&region);
    boot(&region, true, -(int64_t)YEAR);
    region = open_real();
    assert_went_on(before_ns, region_now(&region), 0);
    assert_anchored(&region);
    region_close(&region);
}

/* After a boot no decision is later than now, though the last ones came after the last heartbeat.
 */
TEST(test_no_decision_is_later_than_now_after_a_boot)
{
    struct region region = open_real();
    uint64_t mark_ns = region_now(&region) + TEN_MINUTES;
    region.header->mark_ns = mark_ns; /* the last heartbeat is that of the close */
    boot(&region, true, 0);
    region = open_real();
    assert_went_on(mark_ns, region_now(&region), 0);
    region_close(&region);
}

/* Time is not carried past its end, however far on the wall clock was set. */
TEST(test_time_that_is_over_is_refused)
{
    struct stint_table_options options = small_file(STINT_CLOCK_REAL);
    struct stint_error error;
    struct region region = open_real();
    boot(&region, true, 19 * (int64_t)YEAR);
    assert_int_equal(region_open(&region, &options, &error), STINT_E_CORRUPT);
    assert_non_null(strstr(error.message, path));
}

/* A file whose states are from the future is damaged: they would deny for who knows how long. */
TEST(test_states_from_the_future_are_refused)
{
    struct stint_table_options options = small_file(STINT_CLOCK_REAL);
    struct stint_error error;
    struct region region = open_real();
    uint64_t now_ns = region_now(&region);
    region.header->mark_ns = now_ns + S / 2; /* less than clocks may differ by */
    region_close(&region);
    region = open_real();
    region.header->mark_ns = now_ns + DAY;
    region_close(&region);
    assert_int_equal(region_open(&region, &options, &error), STINT_E_CORRUPT);
    options.read_only = true; /* who only looks is not kept from it */
    assert_int_equal(region_open(&region, &options, &error), 0);
    region_close(&region);
}

/* Only a boot before which nobody closed the region is unclean; a mere kill is none. */
TEST(test_an_unclean_boot_is_told)
{
    struct region region = open_real();
    assert_false(region.after_crash);
    boot(&region, true, 0);
    region = open_real();
    assert_false(region.after_crash);
    boot(&region, false, 0);
    region = open_real();
    assert_true(region.after_crash);
    region_close(&region);
    region = open_real(); /* and only once */
    assert_false(region.after_crash);
    region_close(&region);
}

/* One who expires before he has settled leaves the crash to be found by the next. */
TEST(test_a_crash_is_seen_until_it_is_settled)
{
    struct region region = open_real();
    boot(&region, false, 0);
    pid_t child = fork();
    if (child == 0) {
        region = enter(STINT_CLOCK_REAL);
        _exit(region.after_crash ? 0 : 1);
    }
    assert_int_equal(exit_code_of(child), 0);
    region = open_real();
    assert_true(region.after_crash);
    region_close(&region);
}

/* Nor does it make a crash of a clean boot. */
TEST(test_a_clean_boot_is_clean_until_it_is_settled)
{
    struct region region = open_real();
    boot(&region, true, 0);
    pid_t child = fork();
    if (child == 0) {
        region = enter(STINT_CLOCK_REAL);
        _exit(region.after_crash ? 1 : 0);
    }
    assert_int_equal(exit_code_of(child), 0);
    region = open_real();
    assert_false(region.after_crash);
    assert_int_equal(region.header->clean, 0);
    region_close(&region);
}

/* The last to leave says that all is well, and until when; nobody says it before him. */
TEST(test_the_last_to_leave_shuts_the_frontend)
{
    struct stint_table_options options = small_file(STINT_CLOCK_REAL);
    struct region reader;
    struct region first = open_real(), second = open_real();
    options.read_only = true;
    assert_int_equal(region_open(&reader, &options, NULL), 0);
    assert_int_equal(reader.header->clean, 0);
    region_close(&first);
    assert_int_equal(reader.header->clean, 0);
    second.header->heartbeat_ns = 0;
    second.header->heartbeat_wall_ns = 0;
    uint64_t before_ns = clock_boot_ns() + (uint64_t)second.header->clock_offset_ns;
    int64_t wall_ns = clock_wall_ns();
    region_close(&second);
    assert_int_equal(reader.header->clean, 1);
    assert_true(reader.header->heartbeat_ns >= before_ns);
    assert_true(reader.header->heartbeat_wall_ns >= wall_ns - (int64_t)S);
    region_close(&reader);
    first = open_real(); /* whoever comes next is in: it is not clean while he is */
    assert_int_equal(first.header->clean, 0);
    region_close(&first);
}

/* The heart beats when the last beat is a second old, and not each time that somebody asks. */
TEST(test_the_heart_beats_once_a_second)
{
    struct region region = open_real();
    region.header->clock_offset_ns += (int64_t)DAY;
    const uint64_t ahead_ns = region_now(&region) + AT_MOST;
    region.header->heartbeat_ns = ahead_ns;
    region.header->heartbeat_wall_ns = 5;
    region_now(&region);
    assert_int_equal(region.header->heartbeat_ns, ahead_ns);
    assert_int_equal(region.header->heartbeat_wall_ns, 5);
    region.header->heartbeat_ns = ahead_ns - AT_MOST - S - 1;
    uint64_t now_ns = region_now(&region);
    assert_int_equal(region.header->heartbeat_ns, now_ns);
    assert_true(region.header->heartbeat_wall_ns > 5);
    region_close(&region);
}
