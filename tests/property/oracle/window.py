# SPDX-License-Identifier: MIT
"""`window` as a list of bunches: which slot each is charged to, and what is left of the last."""

from .terms import Model

DEFAULT_RESOLUTION = 24
COARSE_RESOLUTION = 16
COARSE_ABOVE_LIMIT = 393_216
COARSE_BELOW_NS = 2_000_000


class Window(Model):
    """Units are taken in bunches of q; a bunch counts in the slot of its latest use."""

    def __init__(self, terms):
        super().__init__(terms)
        self.slots = terms.resolution or (
            COARSE_RESOLUTION
            if terms.limit > COARSE_ABOVE_LIMIT or terms.period_ns < COARSE_BELOW_NS
            else DEFAULT_RESOLUTION)
        self.bunch = max(1, -(-terms.limit // self.slots))
        self.full_bunches, self.short_size = divmod(terms.limit, self.bunch)
        self.newest = 0
        self.bunches = []  # [slot, size], in the order in which they were opened
        self.left = 0      # of the last bunch in the list

    def slot(self, now):
        return now * self.slots // self.terms.period_ns

    def slot_begins(self, slot):
        return -(-slot * self.terms.period_ns // self.slots)

    def _at(self, now):
        """(slot, bunches alive, units left of the last), without changing anything."""
        slot = max(self.slot(now), self.newest)
        alive = [bunch for bunch in self.bunches if bunch[0] + self.slots >= slot]
        return slot, alive, self.left if alive else 0

    def _unopened(self, alive):
        """Sizes of the bunches that may still be opened: full ones first, then the short one."""
        full = sum(1 for _, size in alive if size == self.bunch)
        short = any(size != self.bunch for _, size in alive)
        return [self.bunch] * (self.full_bunches - full) + (
            [self.short_size] if self.short_size and not short else [])

    def room(self, now):
        _, alive, left = self._at(now)
        return left + sum(self._unopened(alive))

    def spend(self, now, count):
        slot, alive, left = self._at(now)
        unopened = self._unopened(alive)
        alive = [list(bunch) for bunch in alive]
        if left:
            alive[-1][0] = slot
            used = min(left, count)
            left -= used
            count -= used
        while count:
            size = unopened.pop(0)
            alive.append([slot, size])
            used = min(size, count)
            left = size - used
            count -= used
        self.newest, self.bunches, self.left = slot, alive, left

    def _ends(self, bunch):
        return self.slot_begins(bunch[0] + self.slots + 1)

    def wait(self, now, cost):
        _, alive, _ = self._at(now)
        for bunch in alive:
            end = self._ends(bunch)
            if self.fits(end, cost):
                return end - now
        raise AssertionError("a cost within capacity fits once all bunches are back")

    def reset_after(self, now):
        _, alive, _ = self._at(now)
        return self._ends(alive[-1]) - now if alive else 0

    def denial_is_justified(self, uses, now, cost):
        """U_{W+O} + c > N - q + 1, with O = W/M."""
        used = uses.used_in(now, (self.slots + 1) * self.terms.period_ns, self.slots)
        return used + cost > self.terms.limit - self.bunch + 1

    def copy(self):
        twin = Window(self.terms)
        twin.newest, twin.left = self.newest, self.left
        twin.bunches = [list(bunch) for bunch in self.bunches]
        return twin
