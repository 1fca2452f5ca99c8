/* SPDX-License-Identifier: MIT */
/* Limiter: the verbs of up to STINT_ITEMS_MAX quotas on one key of a table. */
#include "core.h"

#include <assert.h>

struct limiter_object {
    PyObject_HEAD struct core_state *state;
    struct table_object *table;
    PyObject *quota_objects; /* a tuple of Quota */
    PyObject *name;          /* str or None */
    struct stint_quota *quotas;
    uint32_t n_quotas;
    struct decision_counts *counts; /* of the table, and as long-lived */
};

static struct limiter_object *limiter_of(PyObject *self)
{
    return (struct limiter_object *)self;
}

/* ---- Making a limiter ---- */

/* FNV-1a, then mixed: names are the program's own, so that no key is needed. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t n)
{
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ ((const uint8_t *)bytes)[i]) * UINT64_C(0x100000001b3);
    return hash;
}

static uint64_t mix(uint64_t hash)
{
    hash = (hash ^ (hash >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    hash = (hash ^ (hash >> 27)) * UINT64_C(0x94d049bb133111eb);
    return hash ^ (hash >> 31);
}

/*
 * The identity of a named limiter's states: its name, the quota's algorithm and period, and which
 * of several such quotas it is. So a limiter with another limit keeps what keys have used, and
 * quotas may come and go beside it.
 */
static uint64_t rule_of(const struct limiter_object *self, const char *name, Py_ssize_t len,
                        uint32_t index)
{
    const struct stint_quota *quota = &self->quotas[index];
    uint64_t values[] = {quota->algorithm, quota->period_ns, 0};
    for (uint32_t i = 0; i < index; i++)
        values[2] += self->quotas[i].algorithm == quota->algorithm &&
                     self->quotas[i].period_ns == quota->period_ns;
    uint64_t hash = hash_bytes(UINT64_C(0xcbf29ce484222325), name, (size_t)len);
    hash = mix(hash_bytes(mix(hash), values, sizeof(values)));
    return hash != 0 ? hash : 1;
}

/* Copies the quotas, names their states, and enters them in the table. */
static bool set_quotas(struct limiter_object *self)
{
    Py_ssize_t n = PyTuple_Size(self->quota_objects), name_len = 0;
    const char *name = NULL;
    if (n < 1 || n > STINT_ITEMS_MAX) {
        core_raise(self->state, STINT_E_RANGE, "%zd quotas; expected 1 to %d", n, STINT_ITEMS_MAX);
        return false;
    }
    if (self->name != Py_None && (name = PyUnicode_AsUTF8AndSize(self->name, &name_len)) == NULL)
        return false;
    if (table_opened(self->table) == NULL)
        return false;
    self->quotas = PyMem_Calloc((size_t)n, sizeof(*self->quotas));
    if (self->quotas == NULL) {
        PyErr_NoMemory();
        return false;
    }
    for (uint32_t i = 0; i < (uint32_t)n; i++) {
        PyObject *item = PyTuple_GetItem(self->quota_objects, i);
        if (!PyObject_TypeCheck(item, self->state->quota_type)) {
            PyErr_Format(PyExc_TypeError, "a quota is str or stint.Quota, not %R", Py_TYPE(item));
            return false;
        }
        self->quotas[i] = ((struct quota_object *)item)->quota;
        if (name != NULL)
            self->quotas[i].rule = rule_of(self, name, name_len, i);
        struct stint_error error;
        int code = stint_table_accepts(self->table->table, &self->quotas[i], &error);
        if (code < 0) {
            core_raise(self->state, code, "%s", error.message);
            return false;
        }
    }
    self->n_quotas = (uint32_t)n;
    return true;
}

static PyObject *limiter_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    static char *names[] = {"table", "quotas", "name", "label", NULL};
    const char *label;
    Py_ssize_t label_len;
    PyObject *table, *quotas, *name;
    struct core_state *state = core_state_of(type);
    if (state == NULL ||
        !PyArg_ParseTupleAndKeywords(args, keywords, "O!O!Os#:Limiter", names, state->table_type,
                                     &table, &PyTuple_Type, &quotas, &name, &label, &label_len))
        return NULL;
    if (name != Py_None && !PyUnicode_Check(name))
        return PyErr_Format(PyExc_TypeError, "name is str or None, not %R", Py_TYPE(name));
    struct limiter_object *self = core_alloc(type);
    if (self == NULL)
        return NULL;
    self->state = state;
    self->table = (struct table_object *)Py_NewRef(table);
    self->quota_objects = Py_NewRef(quotas);
    self->name = Py_NewRef(name);
    if (!set_quotas(self) ||
        (self->counts = decision_counts_of(self->table, label, label_len)) == NULL)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static int limiter_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(limiter_of(self)->table);
    Py_VISIT(limiter_of(self)->quota_objects);
    return 0;
}

/* Only when no code reaches the limiter any more, so that its verbs need no check for it. */
static void limiter_dealloc(PyObject *self)
{
    PyObject_GC_UnTrack(self);
    Py_XDECREF(limiter_of(self)->table);
    Py_XDECREF(limiter_of(self)->quota_objects);
    Py_XDECREF(limiter_of(self)->name);
    PyMem_Free(limiter_of(self)->quotas);
    core_free(self);
}

/* ---- What a call is about ---- */

struct call {
    struct limiter_object *limiter;
    struct stint_table *table;
    struct core_key key;
    uint64_t cost;
    uint64_t now_ns;
    PyObject *values[3]; /* of key, cost and what else the function has */
};

/* Reads key and cost (1 if the function has no such argument, or it is absent). */
static bool call_read(struct call *call, const struct core_signature *signature, PyObject *self,
                      PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    call->limiter = limiter_of(self);
    call->cost = 1;
    if (!core_arguments(signature, args, n, keywords, call->values) ||
        (signature->n_names > 1 && call->values[1] != NULL &&
         !core_number(call->limiter->state, call->values[1], "cost", UINT32_MAX, &call->cost)))
        return false;
    return core_key(call->values[0], &call->key);
}

/* After all arguments: reading a number can run code that closes the table. */
static bool call_open(struct call *call)
{
    call->table = table_opened(call->limiter->table);
    if (call->table != NULL)
        call->now_ns = stint_now(call->table);
    else
        Py_CLEAR(call->key.owned);
    return call->table != NULL;
}

static bool call_begin(struct call *call, const struct core_signature *signature, PyObject *self,
                       PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    return call_read(call, signature, self, args, n, keywords) && call_open(call);
}

static PyObject *call_end(struct call *call, const struct stint_decision *decision)
{
    Py_XDECREF(call->key.owned);
    return decision_new(call->limiter->state, decision, call->limiter->quota_objects, call->now_ns);
}

/* Of a verb that takes: its decision is counted. */
static PyObject *call_end_counted(struct call *call, const struct stint_decision *decision)
{
    assert(decision->outcome < OUTCOMES);
    call->limiter->counts->by_outcome[decision->outcome]++;
    return call_end(call, decision);
}

static void list_items(const struct call *call, struct stint_item *items)
{
    for (uint32_t i = 0; i < call->limiter->n_quotas; i++) {
        items[i] = (struct stint_item){
            .quota = &call->limiter->quotas[i],
            .key = call->key.bytes,
            .key_len = (size_t)call->key.len,
            .cost = (uint32_t)call->cost,
        };
    }
}

/* ---- Verbs ---- */

static PyObject *limiter_take(PyObject *self, PyObject *const *args, Py_ssize_t n,
                              PyObject *keywords)
{
    static const struct core_signature signature = {"take", 1, 2, {"key", "cost"}};
    struct call call;
    if (!call_begin(&call, &signature, self, args, n, keywords))
        return NULL;
    struct stint_decision decision;
    if (call.limiter->n_quotas == 1) {
        decision = stint_take(call.table, call.limiter->quotas, call.key.bytes,
                              (size_t)call.key.len, (uint32_t)call.cost, call.now_ns);
    } else {
        struct stint_item items[STINT_ITEMS_MAX];
        list_items(&call, items);
        decision = stint_take_all(call.table, items, call.limiter->n_quotas, call.now_ns);
    }
    return call_end_counted(&call, &decision);
}

typedef struct stint_decision verb_function(struct stint_table *table,
                                            const struct stint_item *items, size_t n_items,
                                            uint64_t now_ns);

typedef PyObject *end_function(struct call *call, const struct stint_decision *decision);

static PyObject *call_verb(verb_function *verb, end_function *end,
                           const struct core_signature *signature, PyObject *self,
                           PyObject *const *args, Py_ssize_t n, PyObject *keywords)
{
    struct call call;
    if (!call_begin(&call, signature, self, args, n, keywords))
        return NULL;
    struct stint_item items[STINT_ITEMS_MAX];
    list_items(&call, items);
    struct stint_decision decision = verb(call.table, items, call.limiter->n_quotas, call.now_ns);
    return end(&call, &decision);
}

/* Counts a refusal that peek() found, for a caller that then takes nothing. */
static PyObject *limiter_count(PyObject *self, PyObject *outcome)
{
    int number = decision_outcome(limiter_of(self)->state, outcome);
    if (number < 0)
        return NULL;
    limiter_of(self)->counts->by_outcome[number]++;
    Py_RETURN_NONE;
}

static PyObject *limiter_take_upto(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                   PyObject *keywords)
{
    static const struct core_signature signature = {"take_upto", 2, 2, {"key", "cost"}};
    return call_verb(stint_take_upto, call_end_counted, &signature, self, args, n, keywords);
}

static PyObject *limiter_peek(PyObject *self, PyObject *const *args, Py_ssize_t n,
                              PyObject *keywords)
{
    static const struct core_signature signature = {"peek", 1, 2, {"key", "cost"}};
    return call_verb(stint_peek, call_end, &signature, self, args, n, keywords);
}

static PyObject *limiter_charge(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                PyObject *keywords)
{
    static const struct core_signature signature = {"charge", 2, 2, {"key", "cost"}};
    return call_verb(stint_charge, call_end, &signature, self, args, n, keywords);
}

static PyObject *limiter_refund(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                PyObject *keywords)
{
    static const struct core_signature signature = {
        "refund", 2, 3, {"key", "cost", "granted_at_ns"}};
    struct call call;
    if (!call_read(&call, &signature, self, args, n, keywords))
        return NULL;
    uint64_t granted_at_ns = STINT_NEVER_NS;
    PyObject *given = call.values[2];
    if (given != NULL && given != Py_None &&
        !core_number(call.limiter->state, given, "granted_at_ns", STINT_NOW_MAX, &granted_at_ns)) {
        Py_XDECREF(call.key.owned);
        return NULL;
    }
    if (!call_open(&call))
        return NULL;
    struct stint_item items[STINT_ITEMS_MAX];
    list_items(&call, items);
    struct stint_decision decision =
        stint_refund(call.table, items, call.limiter->n_quotas, granted_at_ns, call.now_ns);
    return call_end(&call, &decision);
}

static PyObject *limiter_reset(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *keywords)
{
    static const struct core_signature signature = {"reset", 1, 1, {"key"}};
    struct call call;
    if (!call_begin(&call, &signature, self, args, n, keywords))
        return NULL;
    for (uint32_t i = 0; i < call.limiter->n_quotas; i++)
        stint_reset(call.table, &call.limiter->quotas[i], call.key.bytes, (size_t)call.key.len,
                    call.now_ns);
    Py_XDECREF(call.key.owned);
    Py_RETURN_NONE;
}

static PyObject *raise_block(const struct call *call, int code)
{
    if (code == STINT_E_FULL)
        return core_raise(call->limiter->state, code,
                          "the table has as many blocked keys as it can hold; open a new table "
                          "with a larger `blocks`");
    return core_raise(call->limiter->state, code,
                      "the key has %zd bytes, or the block ends too late; expected at most %d "
                      "bytes, and an end within 18 years of the table's time 0",
                      call->key.len, STINT_KEY_MAX);
}

static PyObject *limiter_block(PyObject *self, PyObject *const *args, Py_ssize_t n,
                               PyObject *keywords)
{
    static const struct core_signature signature = {"block", 2, 2, {"key", "seconds"}};
    PyObject *values[2];
    struct limiter_object *limiter = limiter_of(self);
    struct call call = {.limiter = limiter};
    uint64_t length_ns;
    if (!core_arguments(&signature, args, n, keywords, values) ||
        !core_seconds(limiter->state, values[1], "seconds", STINT_NOW_MAX, &length_ns) ||
        !core_key(values[0], &call.key) || !call_open(&call))
        return NULL;
    int code = stint_block(call.table, call.key.bytes, (size_t)call.key.len,
                           call.now_ns + length_ns, call.now_ns);
    if (code < 0)
        raise_block(&call, code);
    Py_XDECREF(call.key.owned);
    if (code < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* ---- Reservations ---- */

/* Returns (decision, slot, nonce); the last two name the ticket. */
static PyObject *limiter_reserve(PyObject *self, PyObject *const *args, Py_ssize_t n,
                                 PyObject *keywords)
{
    static const struct core_signature signature = {"reserve", 3, 3, {"key", "cost", "seconds"}};
    struct call call;
    if (!call_read(&call, &signature, self, args, n, keywords))
        return NULL;
    uint64_t lifetime_ns;
    if (!core_seconds(call.limiter->state, call.values[2], "expires", STINT_NOW_MAX,
                      &lifetime_ns)) {
        Py_XDECREF(call.key.owned);
        return NULL;
    }
    if (!call_open(&call))
        return NULL;
    struct stint_item items[STINT_ITEMS_MAX];
    list_items(&call, items);
    struct stint_ticket ticket = {0};
    struct stint_decision decision =
        stint_reserve(call.table, items, call.limiter->n_quotas, lifetime_ns, call.now_ns, &ticket);
    PyObject *answer = call_end_counted(&call, &decision);
    return answer != NULL ? Py_BuildValue("NKK", answer, (unsigned long long)ticket.slot,
                                          (unsigned long long)ticket.nonce)
                          : NULL;
}

static bool read_ticket(PyObject *const *args, Py_ssize_t n, Py_ssize_t expected,
                        struct stint_ticket *ticket)
{
    if (n != expected) {
        PyErr_Format(PyExc_TypeError, "expected %zd arguments, not %zd", expected, n);
        return false;
    }
    ticket->slot = PyLong_AsUnsignedLongLong(args[0]);
    ticket->nonce = PyErr_Occurred() ? 0 : PyLong_AsUnsignedLongLong(args[1]);
    return !PyErr_Occurred();
}

static PyObject *end_ticket(PyObject *self, PyObject *const *args, Py_ssize_t n, bool settles)
{
    struct limiter_object *limiter = limiter_of(self);
    struct stint_ticket ticket;
    uint64_t actual = 0;
    if (!read_ticket(args, n, settles ? 3 : 2, &ticket) ||
        (settles && !core_number(limiter->state, args[2], "actual", UINT32_MAX, &actual)))
        return NULL;
    struct stint_table *table = table_opened(limiter->table);
    if (table == NULL)
        return NULL;
    struct stint_decision decision = {0};
    uint64_t now_ns = stint_now(table);
    int code = settles ? stint_settle(table, ticket, (uint32_t)actual, now_ns, &decision)
                       : stint_cancel(table, ticket, now_ns, &decision);
    if (code < 0)
        return core_raise(limiter->state, code,
                          "the reservation is not open: it was settled or cancelled, or it has "
                          "expired");
    return decision_new(limiter->state, &decision, limiter->quota_objects, now_ns);
}

static PyObject *limiter_settle(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return end_ticket(self, args, n, true);
}

static PyObject *limiter_cancel(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    return end_ticket(self, args, n, false);
}

static PyObject *limiter_renew(PyObject *self, PyObject *const *args, Py_ssize_t n)
{
    struct limiter_object *limiter = limiter_of(self);
    struct stint_ticket ticket;
    if (!read_ticket(args, n, 2, &ticket))
        return NULL;
    struct stint_table *table = table_opened(limiter->table);
    if (table == NULL)
        return NULL;
    int code = stint_renew(table, ticket, stint_now(table));
    if (code == STINT_E_MISMATCH)
        return core_raise(limiter->state, code,
                          "only units of a concurrency quota are held and can be renewed");
    if (code < 0)
        return core_raise(limiter->state, code,
                          "the units are no longer held: released, or "
                          "their lease has ended");
    Py_RETURN_NONE;
}

/* ---- The type ---- */

static PyObject *get_quotas(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(limiter_of(self)->quota_objects);
}

static PyObject *get_name(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef(limiter_of(self)->name);
}

static PyObject *get_table(PyObject *self, void *unused)
{
    (void)unused;
    return Py_NewRef((PyObject *)limiter_of(self)->table);
}

static PyGetSetDef attributes[] = {
    {"quotas", get_quotas, NULL, "The quotas, a tuple of Quota.", NULL},
    {"name", get_name, NULL, "The name of the limiter's states, or None.", NULL},
    {"table", get_table, NULL, "The table.", NULL},
    {0},
};

static PyMethodDef methods[] = {
    {"take", CORE_FAST(limiter_take), METH_FASTCALL | METH_KEYWORDS,
     "take($self, /, key, cost=1)\n--\n\n"
     "Takes the whole cost from every quota, or nothing.\n\n"
     "key: str, counted as its UTF-8, or bytes. cost: 0 to 2**32-1 units; 0 takes nothing.\n"
     "Returns a Decision. A key of more than 65,536 bytes is never allowed. Raises TypeError\n"
     "for another key, QuotaError for a cost out of range. Any thread."},
    {"take_upto", CORE_FAST(limiter_take_upto), METH_FASTCALL | METH_KEYWORDS,
     "take_upto($self, /, key, cost)\n--\n\n"
     "Takes as many units as are free, at most `cost`; `granted` says how many."},
    {"peek", CORE_FAST(limiter_peek), METH_FASTCALL | METH_KEYWORDS,
     "peek($self, /, key, cost=1)\n--\n\n"
     "The decision that take() would return; changes nothing."},
    {"charge", CORE_FAST(limiter_charge), METH_FASTCALL | METH_KEYWORDS,
     "charge($self, /, key, cost)\n--\n\n"
     "Records units that were used already. It is refused only under a limit of 0, and for a\n"
     "new key without a slot in a full table."},
    {"refund", CORE_FAST(limiter_refund), METH_FASTCALL | METH_KEYWORDS,
     "refund($self, /, key, cost, granted_at_ns=None)\n--\n\n"
     "Gives back units that were granted and not used; `granted` says how many came back.\n\n"
     "granted_at_ns: at_ns of the decision that granted them. None counts as granted now: only\n"
     "so can a caller void the bound of a quota."},
    {"reset", CORE_FAST(limiter_reset), METH_FASTCALL | METH_KEYWORDS,
     "reset($self, /, key)\n--\n\n"
     "Forgets what the key has used of these quotas, and removes a block of the key."},
    {"block", CORE_FAST(limiter_block), METH_FASTCALL | METH_KEYWORDS,
     "block($self, /, key, seconds)\n--\n\n"
     "Denies the key for so long, under every quota of the table. reset() removes the block.\n"
     "Raises TableError when the table holds as many blocked keys as it can."},
    {"_count", limiter_count, METH_O, NULL},
    {"_reserve", CORE_FAST(limiter_reserve), METH_FASTCALL | METH_KEYWORDS, NULL},
    {"_settle", CORE_FAST(limiter_settle), METH_FASTCALL, NULL},
    {"_cancel", CORE_FAST(limiter_cancel), METH_FASTCALL, NULL},
    {"_renew", CORE_FAST(limiter_renew), METH_FASTCALL, NULL},
    {0},
};

static PyType_Slot slots[] = {
    {Py_tp_new, limiter_new},           {Py_tp_dealloc, limiter_dealloc},
    {Py_tp_traverse, limiter_traverse}, {Py_tp_getset, attributes},
    {Py_tp_methods, methods},           {0, NULL},
};

PyType_Spec limiter_spec = {
    .name = "stint._core.Limiter",
    .basicsize = sizeof(struct limiter_object),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = slots,
};
