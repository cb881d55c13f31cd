from tests.contract.conformance import X
def test_x():
    assert X
