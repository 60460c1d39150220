"""A table with constraints of all kinds, as clients of Hive 4 create it."""

from lakemark_thrift import ttypes


def constrained_table(db: str = "default") -> ttypes.CreateTableRequest:
    """The table ``t`` with columns a int, b int."""
    own = {"catName": "hive", "table_db": db, "table_name": "t"}
    return ttypes.CreateTableRequest(
        table=ttypes.Table(
            tableName="t",
            dbName=db,
            sd=ttypes.StorageDescriptor(
                cols=[ttypes.FieldSchema("a", "int"), ttypes.FieldSchema("b", "int")], serdeInfo=ttypes.SerDeInfo()
            ),
            parameters={},
        ),
        primaryKeys=[ttypes.SQLPrimaryKey(db, "t", "a", 1, "p", False, False, True)],
        foreignKeys=[ttypes.SQLForeignKey(db, "t", "a", db, "t", "b", 1, 0, 0, "f", None, False, False, True)],
        uniqueConstraints=[
            ttypes.SQLUniqueConstraint(**own, column_name="a", key_seq=1, uk_name="u1"),
            ttypes.SQLUniqueConstraint(**own, column_name="b", key_seq=2, uk_name="u1"),
            ttypes.SQLUniqueConstraint(**own, column_name="b", key_seq=1, uk_name="u2"),
        ],
        notNullConstraints=[
            ttypes.SQLNotNullConstraint(**own, column_name="a"),
            ttypes.SQLNotNullConstraint(**own, column_name="b"),
        ],
        defaultConstraints=[ttypes.SQLDefaultConstraint(**own, column_name="b", default_value="7", dc_name="d")],
        checkConstraints=[ttypes.SQLCheckConstraint(**own, check_expression="a > b", dc_name="c", enable_cstr=True)],
    )
