"""What is made of the results of Hive's own tests."""

from tests.unit.scripts.loaded import load_script

conformance = load_script("conformance")


def test_results_are_counted_and_known_failures_by_themselves() -> None:
    results = "A\tone\tpass\t\nA\ttwo\tfail\tBroken\nA\tthree\tfail\tDerby\nB\tfour\tskip\tignored\nB\ttwo\tfail\tx\n"
    known = conformance.known_failures("# a comment\n\nA three a reason with words\nB three it passes\n")
    assert known == {("A", "three"), ("B", "three")}
    expected = {"passed": 1, "failed": 2, "skipped": 1, "fail_on_hive_too": 1}
    assert conformance.summary(results, known) == expected


def test_the_list_names_tests() -> None:
    known = conformance.known_failures(conformance.FAIL_ON_HIVE.read_text())
    assert {kind for kind, _ in known} == {"TestAddPartitions", "TestTablesCreateDropAlterTruncate"}
