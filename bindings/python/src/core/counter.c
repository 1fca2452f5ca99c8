/* SPDX-License-Identifier: MIT */
/* Counters that expire: methods of Table, and Count, what they return. */
#include "core.h"

struct count_object {
    PyObject_HEAD struct stint_counter counter;
};

static const struct stint_counter *counter_of(PyObject *self)
{
    return &((struct count_object *)self)->counter;
}

/* ---- Methods of Table ---- */

static PyObject *count_new(const struct core_state *state, const struct stint_counter *counter)
{
    struct count_object *made = PyObject_New(struct count_object, state->count_type);
    if (made != NULL)
        made->counter = *counter;
    return (PyObject *)made;
}

static bool read_amount(const struct core_state *state, PyObject *given, int64_t *amount)
{
    *amount = PyLong_AsLongLong(given);
    if (*amount != -1 || !PyErr_Occurred())
        return true;
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) {
        PyErr_Clear();
        core_raise(state, STINT_E_RANGE,
                   "amount is out of range; expected -4294967295 to "
                   "4294967295");
    }
    return false;
}

static PyObject *add_amount(struct table_object *self, PyObject *key_given, int64_t amount,
                            uint64_t expiry_ns)
{
    struct core_key key;
    struct stint_table *table = NULL;
    if (!core_key(key_given, &key) || (table = table_opened(self)) == NULL) {
        Py_XDECREF(key.owned);
        return NULL;
    }
    struct stint_counter counter;
    struct stint_error error;
    int code = stint_count(table, key.bytes, (size_t)key.len, amount, expiry_ns, stint_now(table),
                           &counter, &error);
    Py_XDECREF(key.owned);
    return code < 0 ? core_raise(self->state, code, "%s", error.message)
                    : count_new(self->state, &counter);
}

PyObject *counter_count(PyObject *self, PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    static const struct core_signature signature = {"count", 1, 3, {"key", "amount", "expiry"}};
    struct table_object *table = (struct table_object *)self;
    PyObject *values[3];
    int64_t amount = 1;
    uint64_t expiry_ns = 0;
    if (!core_arguments(&signature, args, n, keywords, values))
        return NULL;
    bool has_expiry = values[2] != NULL && values[2] != Py_None;
    if ((values[1] != NULL && !read_amount(table->state, values[1], &amount)) ||
        (has_expiry &&
         !core_seconds(table->state, values[2], "expiry", STINT_COUNT_EXPIRY_MAX_NS, &expiry_ns)))
        return NULL;
    if (!has_expiry && amount > 0)
        return core_raise(table->state, STINT_E_RANGE,
                          "a counter needs an expiry; give the seconds after which it ends");
    return add_amount(table, values[0], amount, expiry_ns);
}

PyObject *counter_read(PyObject *self, PyObject *key)
{
    return add_amount((struct table_object *)self, key, 0, 0);
}

PyObject *counter_reset(PyObject *self, PyObject *given)
{
    struct table_object *table = (struct table_object *)self;
    struct core_key key;
    if (!core_key(given, &key) || table_opened(table) == NULL) {
        Py_XDECREF(key.owned);
        return NULL;
    }
    struct stint_error error;
    int code = stint_count_reset(table->table, key.bytes, (size_t)key.len, &error);
    Py_XDECREF(key.owned);
    if (code < 0)
        return core_raise(table->state, code, "%s", error.message);
    Py_RETURN_NONE;
}

/* ---- Count ---- */

static void count_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_Free(self);
    Py_DECREF(type);
}

static PyObject *get_count(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(counter_of(self)->count);
}

static PyObject *get_expires_after(PyObject *self, void *unused)
{
    (void)unused;
    return PyFloat_FromDouble((double)counter_of(self)->expires_after_ns / 1e9);
}

static PyObject *get_expires_after_ns(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(counter_of(self)->expires_after_ns);
}

static PyObject *count_repr(PyObject *self)
{
    return PyUnicode_FromFormat("<stint.Count %llu: expires_after_ns=%llu>",
                                (unsigned long long)counter_of(self)->count,
                                (unsigned long long)counter_of(self)->expires_after_ns);
}

static PyGetSetDef attributes[] = {
    {"count", get_count, NULL, "The count, 0 to 2**52-1, at which it stays.", NULL},
    {"expires_after", get_expires_after, NULL,
     "Seconds until the counter ends; 0.0 if there is none.", NULL},
    {"expires_after_ns", get_expires_after_ns, NULL, "The same in nanoseconds.", NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_dealloc, count_dealloc},
    {Py_tp_repr, count_repr},
    {Py_tp_getset, attributes},
    {Py_tp_doc, "A counter of a table: what Table.count() and counter() return."},
    {0, NULL},
};

PyType_Spec count_spec = {
    .name = "stint.Count",
    .basicsize = sizeof(struct count_object),
#ifdef Py_TPFLAGS_DISALLOW_INSTANTIATION
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
#else
    .flags = Py_TPFLAGS_DEFAULT,
#endif
    .slots = slots,
};
