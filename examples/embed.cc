/* SPDX-License-Identifier: MIT */
/*
 * The same library from C++: the table in an owner, the time from the caller.
 *
 *     c++ -std=c++11 embed.cc $(pkg-config --cflags --libs stint) -o embed
 */
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>

#include <stint.h>

namespace
{

struct Close {
    void operator()(stint_table *table) const
    {
        stint_table_close(table);
    }
};

using Table = std::unique_ptr<stint_table, Close>;

Table open_table()
{
    stint_table_options options{};
    options.keys = 1000;
    options.clock = STINT_CLOCK_VIRTUAL;

    stint_table *table = nullptr;
    stint_error error;
    if (stint_table_open(&table, &options, &error) < 0)
        throw std::runtime_error(error.message);
    return Table(table);
}

stint_quota parse(const std::string &spec)
{
    stint_quota quota;
    stint_error error;
    if (stint_quota_parse(&quota, spec.c_str(), &error) < 0)
        throw std::runtime_error(error.message);
    return quota;
}

} // namespace

int main()
{
    try {
        const Table table = open_table();
        const stint_quota quota = parse("gcra 2/10s");
        const std::string key = "alice";
        const std::uint64_t second = 1000000000;

        for (std::uint64_t now : {0 * second, 0 * second, 0 * second, 5 * second}) {
            const stint_decision d =
                stint_take(table.get(), &quota, key.data(), key.size(), 1, now);
            std::cout << now / second << " s: " << (d.outcome == STINT_ALLOW ? "allow" : "deny")
                      << ", retry after " << d.retry_after_ns / second << " s\n";
        }
    } catch (const std::exception &problem) {
        std::cerr << "embed: " << problem.what() << "\n";
        return 1;
    }
    return 0;
}
