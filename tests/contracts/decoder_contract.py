"""The suite of decoders as it runs here: `make test` draws what takes long."""

from __future__ import annotations

import pytest

from windrow.ingest.ports.decoder import Decoder
from windrow.ingest.testing.contracts import decoder as public


class DecoderContract(public.DecoderContract):
    """The promises."""

    @pytest.mark.some(1)
    @pytest.mark.slow
    def test_monsters_cost_themselves_only(self, decoder: Decoder) -> None:
        """Megabytes between good messages leave these as they are."""
        super().test_monsters_cost_themselves_only(decoder)
