"""OpenAI's files, uploads and vector stores."""

from __future__ import annotations


def test_errors_have_openai_s_shape(client, access):
    """Every error below /v1 is what OpenAI's clients read: unknown routes, missing tokens, invalid values."""
    error = client.get("/v1/nothing").json()["error"]
    assert (error["type"], error["param"], error["code"]) == ("invalid_request_error", None, "not_found")
    assert "/v1/nothing" in error["message"]
    access.create("read")
    refused = client.get("/v1/files", headers={"Authorization": "Bearer lrg_no"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (401, "invalid_api_key")
    assert client.get("/api/v1/nothing").json().keys() >= {"detail", "remedy", "request_id"}
