/* SPDX-License-Identifier: MIT */
/* Decision: what a limiter answered. Immutable; attributes are made when they are read. */
#include "core.h"

#include <math.h>

#define NS_PER_S 1e9

struct decision_object {
    PyObject_HEAD struct stint_decision decision;
    PyObject *quotas; /* a tuple */
    uint64_t at_ns;
};

static const struct stint_decision *decision_of(PyObject *self)
{
    return &((struct decision_object *)self)->decision;
}

PyObject *decision_new(const struct core_state *state, const struct stint_decision *decision,
                       PyObject *quotas, uint64_t at_ns)
{
    struct decision_object *self = PyObject_New(struct decision_object, state->decision_type);
    if (self == NULL)
        return NULL;
    self->decision = *decision;
    self->quotas = Py_NewRef(quotas);
    self->at_ns = at_ns;
    return (PyObject *)self;
}

static void decision_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Py_DECREF(((struct decision_object *)self)->quotas);
    PyObject_Free(self);
    Py_DECREF(type);
}

int decision_outcome(const struct core_state *state, PyObject *name)
{
    for (int i = 0; i < OUTCOMES; i++)
        if (PyUnicode_Compare(state->outcome_names[i], name) == 0)
            return i;
    PyErr_Format(PyExc_ValueError, "outcome is %R; expected 'allow', 'deny' or 'never'", name);
    return -1;
}

/* Reads a wait, which may be STINT_NEVER_NS. */
static bool read_wait(PyObject *given, uint64_t *ns)
{
    if (given != NULL)
        *ns = PyLong_AsUnsignedLongLong(given);
    return !PyErr_Occurred();
}

/* For limiters that are not of this process, and for tests. */
static PyObject *decision_make(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"outcome",        "granted", "limit",  "remaining", "retry_after_ns",
                            "reset_after_ns", "binding", "quotas", "at_ns",     NULL};
    enum { GRANTED, LIMIT, REMAINING, BINDING, AT, NUMBERS };
    static const uint64_t most[NUMBERS] = {UINT32_MAX, UINT32_MAX, UINT32_MAX, STINT_ITEMS_MAX - 1,
                                           STINT_NOW_MAX};
    static const int places[NUMBERS] = {1, 2, 3, 6, 8};
    PyObject *outcome, *given[NUMBERS] = {NULL}, *quotas = NULL, *retry = NULL, *reset = NULL;
    if (!PyArg_ParseTupleAndKeywords(args, keywords, "U|OOOO!O!OO!O:Decision", names, &outcome,
                                     &given[GRANTED], &given[LIMIT], &given[REMAINING],
                                     &PyLong_Type, &retry, &PyLong_Type, &reset, &given[BINDING],
                                     &PyTuple_Type, &quotas, &given[AT]))
        return NULL;
    struct core_state *state = core_state_of(type);
    int number = state != NULL ? decision_outcome(state, outcome) : -1;
    if (number < 0)
        return NULL;
    uint64_t numbers[NUMBERS] = {0};
    for (int i = 0; i < NUMBERS; i++)
        if (given[i] != NULL &&
            !core_number(state, given[i], names[places[i]], most[i], &numbers[i]))
            return NULL;
    struct stint_decision decision = {
        .outcome = (uint8_t)number,
        .binding = (uint8_t)numbers[BINDING],
        .stored = 1,
        .granted = (uint32_t)numbers[GRANTED],
        .limit = (uint32_t)numbers[LIMIT],
        .remaining = (uint32_t)numbers[REMAINING],
        .retry_after_ns = number == STINT_NEVER ? STINT_NEVER_NS : 0,
    };
    if (!read_wait(retry, &decision.retry_after_ns) || !read_wait(reset, &decision.reset_after_ns))
        return NULL;
    PyObject *known = quotas != NULL ? Py_NewRef(quotas) : PyTuple_New(0);
    PyObject *self = known != NULL ? decision_new(state, &decision, known, numbers[AT]) : NULL;
    Py_XDECREF(known);
    return self;
}

static int decision_is_allowed(PyObject *self)
{
    return decision_of(self)->outcome == STINT_ALLOW;
}

static PyObject *name_of_outcome(PyObject *self)
{
    const struct core_state *state = PyType_GetModuleState(Py_TYPE(self));
    return Py_NewRef(state->outcome_names[decision_of(self)->outcome]);
}

static PyObject *seconds_of(uint64_t ns)
{
    return PyFloat_FromDouble(ns == STINT_NEVER_NS ? INFINITY : (double)ns / NS_PER_S);
}

static PyObject *decision_repr(PyObject *self)
{
    const struct stint_decision *d = decision_of(self);
    PyObject *outcome = name_of_outcome(self);
    PyObject *retry = seconds_of(d->retry_after_ns);
    PyObject *text = NULL;
    if (retry != NULL)
        text = PyUnicode_FromFormat(
            "<stint.Decision %U: granted=%u limit=%u remaining=%u retry_after=%R>", outcome,
            d->granted, d->limit, d->remaining, retry);
    Py_DECREF(outcome);
    Py_XDECREF(retry);
    return text;
}

static PyObject *decision_reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    const struct stint_decision *d = decision_of(self);
    return Py_BuildValue("O(NIIIKKbOK)", Py_TYPE(self), name_of_outcome(self), d->granted, d->limit,
                         d->remaining, (unsigned long long)d->retry_after_ns,
                         (unsigned long long)d->reset_after_ns, d->binding,
                         ((struct decision_object *)self)->quotas,
                         (unsigned long long)((struct decision_object *)self)->at_ns);
}

static PyObject *decision_compare(PyObject *self, PyObject *other, int operation)
{
    if (Py_TYPE(self) != Py_TYPE(other) || (operation != Py_EQ && operation != Py_NE))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *mine = decision_reduce(self, NULL), *its = decision_reduce(other, NULL);
    PyObject *result =
        mine != NULL && its != NULL ? PyObject_RichCompare(mine, its, operation) : NULL;
    Py_XDECREF(mine);
    Py_XDECREF(its);
    return result;
}

static Py_hash_t decision_hash(PyObject *self)
{
    PyObject *values = decision_reduce(self, NULL);
    Py_hash_t hash = values != NULL ? PyObject_Hash(values) : -1;
    Py_XDECREF(values);
    return hash;
}

/* ---- Attributes ---- */

static PyObject *get_allowed(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(decision_is_allowed(self));
}

static PyObject *get_outcome(PyObject *self, void *unused)
{
    (void)unused;
    return name_of_outcome(self);
}

static PyObject *get_granted(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(decision_of(self)->granted);
}

static PyObject *get_limit(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(decision_of(self)->limit);
}

static PyObject *get_remaining(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLong(decision_of(self)->remaining);
}

static PyObject *get_retry_after(PyObject *self, void *unused)
{
    (void)unused;
    return seconds_of(decision_of(self)->retry_after_ns);
}

static PyObject *get_reset_after(PyObject *self, void *unused)
{
    (void)unused;
    return seconds_of(decision_of(self)->reset_after_ns);
}

static PyObject *get_retry_after_ns(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(decision_of(self)->retry_after_ns);
}

static PyObject *get_reset_after_ns(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(decision_of(self)->reset_after_ns);
}

static PyObject *get_binding(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromLong(decision_of(self)->binding);
}

static PyObject *get_at_ns(PyObject *self, void *unused)
{
    (void)unused;
    return PyLong_FromUnsignedLongLong(((struct decision_object *)self)->at_ns);
}

static PyObject *get_quota(PyObject *self, void *unused)
{
    (void)unused;
    PyObject *quotas = ((struct decision_object *)self)->quotas;
    if (decision_of(self)->binding >= PyTuple_Size(quotas))
        Py_RETURN_NONE;
    return Py_NewRef(PyTuple_GetItem(quotas, decision_of(self)->binding));
}

static PyObject *get_stored(PyObject *self, void *unused)
{
    (void)unused;
    return PyBool_FromLong(decision_of(self)->stored);
}

static PyGetSetDef attributes[] = {
    {"allowed", get_allowed, NULL, "Whether the units were granted; so is the decision's truth.",
     NULL},
    {"outcome", get_outcome, NULL,
     "'allow', 'deny' (not now) or 'never' (this cost can never fit).", NULL},
    {"granted", get_granted, NULL, "Units taken; of refund and charge, units moved.", NULL},
    {"limit", get_limit, NULL, "The largest value of remaining.", NULL},
    {"remaining", get_remaining, NULL, "Units that one caller could still take now.", NULL},
    {"retry_after", get_retry_after, NULL,
     "Seconds after which this cost is allowed if no other caller takes units: 0.0 when allowed,\n"
     "math.inf for 'never'.",
     NULL},
    {"reset_after", get_reset_after, NULL, "Seconds until the key is as never used.", NULL},
    {"retry_after_ns", get_retry_after_ns, NULL, "retry_after in nanoseconds; 2**64-1 for 'never'.",
     NULL},
    {"reset_after_ns", get_reset_after_ns, NULL, "reset_after in nanoseconds.", NULL},
    {"binding", get_binding, NULL, "Index of the quota that has the smallest share left.", NULL},
    {"quota", get_quota, NULL, "The quota at that index; None if it is not known.", NULL},
    {"stored", get_stored, NULL,
     "False if the table had no slot for the key, and when_full decided.", NULL},
    {"at_ns", get_at_ns, NULL, "The table's time of the decision: granted_at_ns of a refund.",
     NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"__reduce__", decision_reduce, METH_NOARGS, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, decision_make},
    {Py_tp_dealloc, decision_dealloc},
    {Py_tp_repr, decision_repr},
    {Py_tp_hash, decision_hash},
    {Py_tp_richcompare, decision_compare},
    {Py_nb_bool, decision_is_allowed},
    {Py_tp_getset, attributes},
    {Py_tp_methods, methods},
    {Py_tp_doc,
     "Decision(outcome, granted=0, limit=0, remaining=0, retry_after_ns=0, reset_after_ns=0,\n"
     "         binding=0, quotas=(), at_ns=0)\n--\n\n"
     "What a limiter answered: true if the units were granted. Immutable."},
    {0, NULL},
};

PyType_Spec decision_spec = {
    .name = "stint.Decision",
    .basicsize = sizeof(struct decision_object),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = slots,
};
