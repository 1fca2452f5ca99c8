/* SPDX-License-Identifier: MIT */
/* Table: a handle on a table in anonymous shared memory or in a file. */
#include "core.h"

#include <assert.h>
#include <stddef.h>
#include <string.h>

static struct table_object *table_of(PyObject *self)
{
    return (struct table_object *)self;
}

/* ---- Opening and closing ---- */

struct number_option {
    const char *name;
    size_t offset, size;
    uint64_t max;
};

#define NUMBER(field, most)                                                                        \
    {                                                                                              \
        .name = #field, .offset = offsetof(struct stint_table_options, field),                     \
        .size = sizeof(((struct stint_table_options *)0)->field), .max = (most)                    \
    }

static const struct number_option number_options[] = {
    NUMBER(keys, INT64_MAX),      NUMBER(keys16, INT64_MAX),
    NUMBER(keys_wide, INT64_MAX), NUMBER(wide_size, UINT32_MAX),
    NUMBER(tickets, UINT32_MAX),  NUMBER(blocks, UINT32_MAX),
    NUMBER(quotas, UINT32_MAX),   NUMBER(pools, UINT32_MAX),
    NUMBER(epoch_ns, INT64_MAX),  NUMBER(clock, STINT_CLOCK_VIRTUAL),
    NUMBER(must_exist, 1),        NUMBER(read_only, 1),
};

static bool set_option(const struct core_state *state, PyObject *name, PyObject *value,
                       struct stint_table_options *options)
{
    for (size_t i = 0; i < sizeof(number_options) / sizeof(number_options[0]); i++) {
        const struct number_option *option = &number_options[i];
        if (PyUnicode_CompareWithASCIIString(name, option->name) != 0)
            continue;
        uint64_t number;
        if (!core_number(state, value, option->name, option->max, &number))
            return false;
        char *at = (char *)options + option->offset;
        if (option->size == sizeof(uint64_t))
            memcpy(at, &number, sizeof(number));
        else if (option->size == sizeof(uint32_t))
            memcpy(at, &(uint32_t){(uint32_t)number}, sizeof(uint32_t));
        else
            *at = (char)number;
        return true;
    }
    PyErr_Format(PyExc_TypeError, "Table() got an unexpected keyword argument '%U'", name);
    return false;
}

static bool set_options(const struct core_state *state, PyObject *keywords,
                        struct stint_table_options *options)
{
    PyObject *name, *value;
    Py_ssize_t at = 0;
    while (keywords != NULL && PyDict_Next(keywords, &at, &name, &value))
        if (!set_option(state, name, value, options))
            return false;
    return true;
}

static PyObject *open_table(PyTypeObject *type, struct core_state *state,
                            const struct stint_table_options *options)
{
    struct table_object *self = core_alloc(type);
    if (self == NULL)
        return NULL;
    struct stint_error error;
    int code;
    /* A large file is allocated to its end, and one after a crash is repaired: that takes time. */
    Py_BEGIN_ALLOW_THREADS;
    code = stint_table_open(&self->table, options, &error);
    Py_END_ALLOW_THREADS;
    self->state = state;
    if (code < 0) {
        core_raise_table(state, code, error.message);
        Py_CLEAR(self);
    } else {
        decision_counts_open(self);
    }
    return (PyObject *)self;
}

static PyObject *table_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    PyObject *path = Py_None, *encoded = NULL;
    struct core_state *state = core_state_of(type);
    if (state == NULL || !PyArg_ParseTuple(args, "|O:Table", &path))
        return NULL;
    if (path != Py_None && !PyUnicode_FSConverter(path, &encoded))
        return NULL;
    struct stint_table_options options = {
        .path = encoded != NULL ? PyBytes_AsString(encoded) : NULL,
        .memory = encoded != NULL ? STINT_MEMORY_FILE : STINT_MEMORY_SHARED,
    };
    PyObject *self = NULL;
    if (set_options(state, keywords, &options))
        self = open_table(type, state, &options);
    Py_XDECREF(encoded);
    return self;
}

/* A call without the interpreter's lock keeps the table open: close() is refused meanwhile. */
static void close_unused(struct table_object *self)
{
    if (self->uses == 0) {
        stint_table_close(self->table);
        self->table = NULL;
    }
}

static PyObject *table_close(PyObject *self, PyObject *unused)
{
    (void)unused;
    if (table_of(self)->uses > 0)
        return core_raise_table(table_of(self)->state, STINT_E_BUSY,
                                "another thread reads the table; close it afterwards");
    close_unused(table_of(self));
    Py_RETURN_NONE;
}

static int table_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    return 0;
}

static void table_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    close_unused(table_of(self));
    decision_counts_close(table_of(self));
    core_free(self);
}

/* ---- Time ---- */

static PyObject *table_now(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct stint_table *table = table_opened(table_of(self));
    return table != NULL ? PyLong_FromUnsignedLongLong(stint_now(table)) : NULL;
}

static PyObject *table_set_now(PyObject *self, PyObject *value)
{
    uint64_t now_ns;
    if (!core_number(table_of(self)->state, value, "the time", STINT_NOW_MAX, &now_ns))
        return NULL;
    struct stint_table *table = table_opened(table_of(self));
    if (table == NULL)
        return NULL;
    stint_table_set_now(table, now_ns);
    Py_RETURN_NONE;
}

/* ---- Inspection ---- */

static bool set_number(PyObject *dict, const char *name, uint64_t number)
{
    PyObject *value = PyLong_FromUnsignedLongLong(number);
    bool is_set = value != NULL && PyDict_SetItemString(dict, name, value) == 0;
    Py_XDECREF(value);
    return is_set;
}

static PyObject *dict_of(const struct stint_table_info *info)
{
    const struct {
        const char *name;
        uint64_t number;
    } numbers[] = {
        {"bytes", info->bytes},
        {"slots8", info->slots[0]},
        {"slots16", info->slots[1]},
        {"slots_wide", info->slots[2]},
        {"live8", info->live[0]},
        {"live16", info->live[1]},
        {"live_wide", info->live[2]},
        {"blocked", info->blocked},
        {"quotas", info->quotas},
        {"quotas_max", info->quotas_max},
        {"tickets", info->tickets},
        {"wide_size", info->wide_size},
        {"pools", info->pools},
        {"pools_max", info->pools_max},
        {"skew_max_ns", info->skew_max_ns},
        {"evictions_lossless", info->evictions_lossless},
        {"evictions_inherit", info->evictions_inherit},
        {"evictions_evict", info->evictions_evict},
        {"full_denied", info->full_denied},
        {"full_allowed", info->full_allowed},
        {"forgotten_units", info->forgotten_units},
        {"undo_kept_units", info->undo_kept_units},
        {"tickets_dropped", info->tickets_dropped},
        {"owners_displaced", info->owners_displaced},
        {"states_damaged", info->states_damaged},
        {"reservations_expired", info->reservations_expired[STINT_EXPIRY_KEEP]},
    };
    PyObject *dict = PyDict_New();
    for (size_t i = 0; dict != NULL && i < sizeof(numbers) / sizeof(numbers[0]); i++)
        if (!set_number(dict, numbers[i].name, numbers[i].number))
            Py_CLEAR(dict);
    if (dict == NULL)
        return NULL;
    PyObject *epoch = PyLong_FromLongLong(info->epoch_ns);
    bool is_whole =
        epoch != NULL && PyDict_SetItemString(dict, "epoch_ns", epoch) == 0 &&
        PyDict_SetItemString(dict, "virtual_clock", info->clock != 0 ? Py_True : Py_False) == 0 &&
        PyDict_SetItemString(dict, "restored", info->restored ? Py_True : Py_False) == 0 &&
        PyDict_SetItemString(dict, "filled", info->filled ? Py_True : Py_False) == 0;
    Py_XDECREF(epoch);
    if (!is_whole)
        Py_CLEAR(dict);
    return dict;
}

static PyObject *table_info(PyObject *self, PyObject *unused)
{
    (void)unused;
    struct stint_table *table = table_opened(table_of(self));
    if (table == NULL)
        return NULL;
    struct stint_table_info info;
    table_of(self)->uses++;
    /* It counts every slot. */
    Py_BEGIN_ALLOW_THREADS;
    stint_table_info(table, stint_now(table), &info);
    Py_END_ALLOW_THREADS;
    table_of(self)->uses--;
    return dict_of(&info);
}

static PyObject *get_closed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(table_of(self)->table == NULL);
}

/* ---- The type ---- */

static PyGetSetDef attributes[] = {
    {"closed", get_closed, NULL, "Whether the table was closed.", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"now", table_now, METH_NOARGS,
     "now($self)\n--\n\n"
     "The table's time in nanoseconds. It never goes back, also over restarts."},
    {"_set_now", table_set_now, METH_O, NULL},
    {"info", table_info, METH_NOARGS,
     "info($self)\n--\n\n"
     "Sizes and counters, as a dict of integers. It counts every slot, which takes time."},
    {"decisions", decision_counts_read, METH_NOARGS,
     "decisions($self)\n--\n\n"
     "What limiters of this table decided in this process, by name and outcome: {'login':\n"
     "{'allow': 3, 'deny': 1, 'never': 0}}.\n\n"
     "Counted are take(), and what uses it, take_upto(), reserve() and hold(). A limiter without\n"
     "a name counts under its quotas; limiters with one name count together. A process that was\n"
     "forked begins at 0. After 1,000 names the others count together."},
    {"count", CORE_FAST(counter_count), METH_FASTCALL | METH_KEYWORDS,
     "count($self, /, key, amount=1, expiry=None)\n--\n\n"
     "Adds an amount to the counter of a key; returns its Count. No limit is involved.\n\n"
     "amount: -(2**32-1) to 2**32-1; below 0 it subtracts, down to 0. expiry: seconds after which\n"
     "a new counter ends; a later amount does not move that. Needed for an amount above 0. Of\n"
     "callers at once, no two get the same count. Raises QuotaError for a value out of range,\n"
     "TableError when the table is full. Any thread and process."},
    {"counter", counter_read, METH_O,
     "counter($self, key, /)\n--\n\n"
     "The counter of a key, as it is."},
    {"reset_counter", counter_reset, METH_O,
     "reset_counter($self, key, /)\n--\n\n"
     "Forgets the counter of a key."},
    {"close", table_close, METH_NOARGS,
     "close($self)\n--\n\n"
     "Closes this process's handle. Later calls raise TableError; other processes go on."},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, table_new},     {Py_tp_dealloc, table_dealloc}, {Py_tp_traverse, table_traverse},
    {Py_tp_getset, attributes}, {Py_tp_methods, methods},       {0, NULL},
};

PyType_Spec table_spec = {
    .name = "stint._core.Table",
    .basicsize = sizeof(struct table_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
