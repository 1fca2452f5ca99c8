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
        self.displaced = 0  # bunches, that count until the oldest in the list comes back

    def slot(self, now):
        return now * self.slots // self.terms.period_ns

    def slot_begins(self, slot):
        return -(-slot * self.terms.period_ns // self.slots)

    def _at(self, now):
        """(slot, bunches alive, units left of the last), without changing anything."""
        slot = max(self.slot(now), self.newest)
        alive = [bunch for bunch in self.bunches if bunch[0] + self.slots >= slot]
        return slot, alive, self.left if alive else 0

    def _displaced(self, now):
        return self.displaced if len(self._at(now)[1]) == len(self.bunches) else 0

    def _unopened(self, alive):
        """Sizes of the bunches that may still be opened: full ones first, then the short one."""
        full = sum(1 for _, size in alive if size == self.bunch)
        short = any(size != self.bunch for _, size in alive)
        return [self.bunch] * (self.full_bunches - full) + (
            [self.short_size] if self.short_size and not short else [])

    def room(self, now):
        """What the displaced were replaced by has some left, but that is not free."""
        return 0 if self._displaced(now) else self._vacant(now)

    def _vacant(self, now):
        _, alive, left = self._at(now)
        return left + sum(self._unopened(alive))

    def displace(self, now, count):
        """The oldest bunches are emptied, one after the other, and opened again in this slot."""
        displaced, fitting = self._displaced(now), min(count, self._vacant(now))
        if fitting:
            self.spend(now, fitting)
        else:
            self.newest, self.bunches, self.left = self._at(now)
        count -= fitting
        for _ in range(len(self.bunches)):
            if count:
                _, size = self.bunches.pop(0)
                self.bunches.append([self.newest, size])
                displaced += 1
                self.left = max(0, size - count)
                count -= min(size, count)
        self.displaced = min(displaced + -(-count // self.bunch), self.most_displaced())

    def most_displaced(self):
        """What is left of a slot's number, in 1 to 5 bits; where that is full, it stands for more.

        8, 16 or 32 bytes hold bars and stars, what is left of a bunch, the short one's place and
        the slot.
        """
        all_bits = 256 if self.slots > 24 else 112 if self.slots > 12 else 64
        bits = all_bits - 2 * self.slots - 1
        bits -= (self.bunch - 1).bit_length()
        if self.short_size:
            bits -= (self.full_bunches + 1).bit_length()
        bits -= 51 + self.slots.bit_length() - (self.terms.period_ns // 1000).bit_length()
        return 2 ** min(5, max(1, bits)) - 1

    def spend(self, now, count):
        slot, alive, left = self._at(now)
        self.displaced = self._displaced(now)
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

    def refund(self, now, count, granted_at):
        """Oldest bunches first, the displaced before all; in part only the one that is in use."""
        slot, alive, left = self._at(now)
        displaced, granted_in = self._displaced(now), self.slot(min(granted_at, now))
        alive, missing = [list(bunch) for bunch in alive], count
        if granted_in + self.slots < slot or displaced == self.most_displaced():
            return 0
        back = min(displaced, missing // self.bunch)
        displaced -= back
        missing -= back * self.bunch
        while not displaced and alive:
            used = alive[0][1] - (left if len(alive) == 1 else 0)
            if used > missing:
                break
            missing -= used
            alive.pop(0)
            left = left if alive else 0
        if not displaced and alive and missing and (len(alive) == 1 or alive[-1][0] <= granted_in):
            used = min(missing, alive[-1][1] - left)
            missing -= used
            left += used
            if left == alive[-1][1]:
                alive.pop()
                left = 0
        if missing < count:
            self.newest, self.bunches, self.left, self.displaced = slot, alive, left, displaced
        return count - missing

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
        """U_{W+O} + c > N - q + 1, with O = W/M; less by another q - 1 while any are displaced."""
        used = uses.used_in(now, (self.slots + 1) * self.terms.period_ns, self.slots)
        slack = (self.bunch - 1) * (2 if self._displaced(now) else 1)
        return used + cost > self.terms.limit - slack

    def copy(self):
        twin = Window(self.terms)
        twin.newest, twin.left, twin.displaced = self.newest, self.left, self.displaced
        twin.bunches = [list(bunch) for bunch in self.bunches]
        return twin
