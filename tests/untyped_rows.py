"""Reads rows as plain tuples, for tests that look into the tables themselves."""

from perdure.store.statement import Op, Row, Rows, SqlValue, Statement


def rows(sql: str, *values: SqlValue) -> Op[Rows]:
    """Return all rows of a query."""
    return (yield Statement(sql, values))


def row(sql: str, *values: SqlValue) -> Op[Row | None]:
    """Return the first row of a query, or None if there is no row."""
    found = yield Statement(sql, values)
    return found[0] if found else None
