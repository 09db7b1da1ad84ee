"""The key cache: entries are of whole secrets, so that no two keys can share one."""

import asyncio

import pytest

from headrace.errors import ApiError
from headrace.gateway.admission.auth import identify_secret
from tests.house import new_tenant


@pytest.mark.usefixtures("django_database")
def test_keys_that_begin_or_end_alike_are_told_apart() -> None:
    acme, globex = new_tenant(), new_tenant()

    async def story() -> None:
        identity = await identify_secret(acme.secret)
        again = await identify_secret(acme.secret)
        other = await identify_secret(globex.secret)

        assert identity == again
        assert identity.organization_id == acme.organization_id
        assert other.organization_id == globex.organization_id
        for forged in (
            acme.secret[:-1],
            acme.secret + " ",
            acme.secret[:20] + globex.secret[20:],
            acme.secret.swapcase(),
        ):
            with pytest.raises(ApiError) as refused:
                await identify_secret(forged)
            assert refused.value.status == 401

    asyncio.run(story())
