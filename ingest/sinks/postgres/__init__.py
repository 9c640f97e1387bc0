"""Tables in PostgreSQL, told from the bottom up.

names      names of tables, windrow's own among them (pure)
url        what of a server's URL is its place, and what is secret (pure)
columns    which types a table holds, and how two schemas differ (pure)
passes     the loops of the two below, compiled
json_text  values with an inside as JSON, and back (pure)
encode     Arrow batches as rows of a binary COPY (pure)
server     connections, transactions and their outcomes, what the driver's errors stand for
lock       the table's lock, and runs that hold it and were stopped
catalog    what windrow keeps of its tables: whose they are, receipts, ranges, marks
stage      one split's rows in a file that COPY takes, and such files brought in
merge      staged changes merged into a table with a primary key
unfit      servers, users and tables of an owner's own that can hold no windows
prepare    making, binding and comparing a table
sink       the sink itself
keyed      the same of a table with a primary key
dead       the dead letters' own table
read       rows back into Arrow
audit      what verification asks
"""
