/* SPDX-License-Identifier: MIT */
/* Opening and closing tables, and their clock. */
#include "table/clock.h"
#include "table/table.h"

#include <assert.h>
#include <stdlib.h>

static const struct class_ops *const ops[CLASSES] = {
    [CLASS_8] = &place8_ops,
    [CLASS_16] = &place16_ops,
    [CLASS_WIDE] = &wide_ops,
};

static int start_table(struct stint_table *table, const struct stint_table_options *options,
                       struct stint_error *error)
{
    table->process = region_map_private(error);
    if (table->process == NULL)
        return STINT_E_SYSTEM;
    int code = intern_open(&table->intern, &table->region, error);
    if (code != 0) {
        region_unmap_private(table->process);
        return code;
    }
    key_hash_open(&table->key_hash, table->region.fixed.hash_key);
    for (int class = 0; class < CLASSES; class ++)
        slots_open(&table->slots[class], &table->region, (enum slot_class) class, ops[class]);
    table->ahead_ns = intern_period_max(&table->intern);
    if (table->region.alone && !table->region.made) {
        bool after_crash = table->region.after_crash && !options->trust_after_crash;
        table_repair(table, after_crash);
    }
    return 0;
}

/* Not inline: with link-time optimisation gcc would warn that a caller's table may not be set. */
__attribute__((noinline)) int stint_table_open(struct stint_table **table,
                                               const struct stint_table_options *options,
                                               struct stint_error *error)
{
    assert(table != NULL);
    static const struct stint_table_options defaults;
    if (options == NULL)
        options = &defaults;
    struct stint_table *made = calloc(1, sizeof(*made));
    if (made == NULL)
        return err_set(error, STINT_E_SYSTEM, "no memory for a table");
    clock_boot_ns(); /* finds what it reads, before a sandbox closes the files that say so */
    int code = region_open(&made->region, options, error);
    if (code != 0) {
        free(made);
        return code;
    }
    code = start_table(made, options, error);
    if (code != 0) {
        region_close(&made->region);
        free(made);
        return code;
    }
    region_settle(&made->region);
    made->counters = counter_quota();
    assert(table_is_valid(made));
    *table = made;
    return 0;
}

void stint_table_close(struct stint_table *table)
{
    if (table == NULL)
        return;
    assert(table_is_valid(table));
    region_unmap_private(table->process);
    intern_close(&table->intern);
    region_close(&table->region);
    free(table);
}

uint64_t stint_now(const struct stint_table *table)
{
    assert(table == NULL || table_is_valid(table));
    return table != NULL ? region_now(&table->region) : clock_boot_ns();
}

int64_t stint_epoch_ns(const struct stint_table *table)
{
    assert(table_is_valid(table));
    return table->region.epoch_ns;
}

void stint_table_set_now(struct stint_table *table, uint64_t now_ns)
{
    assert(table_is_valid(table));
    if (!table->region.read_only && now_ns <= STINT_NOW_MAX)
        region_raise(&table->region.header->virtual_now_ns, now_ns);
}
