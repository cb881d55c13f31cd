"""Signatures, by the examples of Amazon's own documentation.

https://docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html
"""

from __future__ import annotations

from overspan.bridge.runtime.data.signature import Credentials, SignedRequest, quote_path, sign

EXAMPLE = Credentials("AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
HOST = "examplebucket.s3.amazonaws.com"
AT = 1369353600.0  # 20130524T000000Z


def signature(request: SignedRequest) -> str:
    return sign(request, EXAMPLE, "us-east-1", AT)["authorization"].rpartition("=")[2]


def test_get_object() -> None:
    request = SignedRequest("GET", HOST, "/test.txt", (), {"Range": "bytes=0-9"})
    assert signature(request) == "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"


def test_put_object() -> None:
    headers = {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"}
    payload = "44ce7dd67c959e0d3524ffac1771dfbba87d2b6b4b4e99e42034a8b803f8b072"
    request = SignedRequest("PUT", HOST, quote_path("/test$file.text"), (), headers, payload)
    assert signature(request) == "98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd"


def test_get_bucket_lifecycle() -> None:
    request = SignedRequest("GET", HOST, "/", (("lifecycle", ""),), {})
    assert signature(request) == "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"


def test_list_objects() -> None:
    request = SignedRequest("GET", HOST, "/", (("max-keys", "2"), ("prefix", "J")), {})
    assert signature(request) == "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"


def test_temporary_credentials_have_their_token_signed() -> None:
    temporary = EXAMPLE._replace(session_token="token")
    headers = sign(SignedRequest("GET", HOST, "/", (), {}), temporary, "us-east-1", AT)
    assert headers["x-amz-security-token"] == "token"
    assert "x-amz-security-token" in headers["authorization"]


def test_no_text_of_them_shows_a_secret() -> None:
    assert "wJalr" not in repr(EXAMPLE)
